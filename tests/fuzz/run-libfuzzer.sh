#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run-libfuzzer.sh TARGET SEED...: a bounded run on a private copy of the seeds.
target=$1
shift
corpus=$(mktemp -d)
trap 'rm -rf "$corpus"' EXIT
for seed in "$@"; do
    [ -e "$seed" ] && cp -r "$seed" "$corpus/"
done
"$target" -max_total_time="${TRL_FUZZ_SECONDS:-10}" -timeout=10 -rss_limit_mb=2048 -max_len=65536 \
    -artifact_prefix="$corpus/" -print_final_stats=0 -verbosity=0 "$corpus" || {
    for f in "$corpus"/crash-* "$corpus"/timeout-* "$corpus"/oom-*; do
        [ -f "$f" ] && { echo "$f:"; base64 "$f" | head -40; }
    done
    exit 1
}
