/* SPDX-License-Identifier: Apache-2.0 */
#include "model/problems.h"

#include <stdio.h>

void trl__problem(struct trl_problems *p, int code, const char *fmt, ...)
{
    char line[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    if (p->n++ == 0)
        p->code = code;
    if (p->n > TRL_PROBLEMS_SHOWN)
        return;
    if (p->n > 1)
        trl_str_puts(&p->text, "; ");
    trl_str_puts(&p->text, line);
}

int trl__problems_end(struct trl_problems *p, struct trl_err *err, const char *what)
{
    int rc = 0;
    if (p->n > TRL_PROBLEMS_SHOWN)
        trl_str_printf(&p->text, "; and %d more", p->n - TRL_PROBLEMS_SHOWN);
    if (p->n > 1)
        rc = trl_fail(err, p->code, "%s: %d problems: %s", what, p->n, trl_str_get(&p->text));
    else if (p->n == 1)
        rc = trl_fail(err, p->code, "%s: %s", what, trl_str_get(&p->text));
    trl_str_release(&p->text);
    *p = (struct trl_problems){0};
    return rc;
}
