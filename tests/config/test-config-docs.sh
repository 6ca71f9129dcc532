#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# docs/options.md and docs/trl-train.1 are what trl-gen-options writes now.
set -u
gen=$1
docs=$2
bad=0
echo 1..2
n=0
for pair in md:options.md man:trl-train.1; do
    n=$((n + 1))
    if "$gen" "${pair%%:*}" | cmp -s - "$docs/${pair#*:}"; then
        echo "ok $n - ${pair#*:}"
    else
        echo "not ok $n - ${pair#*:} is old: run meson compile -C build update-docs"
        bad=1
    fi
done
exit $bad
