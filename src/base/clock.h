/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRL_BASE_CLOCK_H
#define TRL_BASE_CLOCK_H
/* Time. */

double trl_clock_now(void);          /* seconds, monotonic */
double trl_clock_wall(void);         /* seconds since 1970 */
double trl_clock_since_exec(void);   /* seconds since this process was started, from /proc */
long long trl_clock_peak_rss(void);  /* bytes: the largest resident set of this process so far */

#endif
