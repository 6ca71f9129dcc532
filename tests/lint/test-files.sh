#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# House rules that a script can see: licence line, file length, banned calls, top-level entries.
cd "$1" || exit 99
bad=$(mktemp)
trap 'rm -f "$bad"' EXIT
{
    find src tests -name '*.[ch]' | sort | while read -r f; do
        head -3 "$f" | grep -q 'SPDX-License-Identifier: Apache-2.0' || echo "$f: no licence line"
        n=$(wc -l <"$f")
        [ "$n" -le 1000 ] || echo "$f: $n lines (1000 at most)"
    done
    grep -nE '\b(strcpy|strcat|sprintf|vsprintf|atoi|atol|atof|strtok|gets)[ ]*\(' -r src --include='*.[ch]'
    for f in *; do
        case $f in
        meson.build | meson_options.txt | LICENSE | README.md | src | scripts | configs | share | tests | docs | build*) ;;
        *) git check-ignore -q "$f" 2>/dev/null || echo "$f: not part of the top-level layout" ;;
        esac
    done
} >"$bad"
if [ -s "$bad" ]; then
    cat "$bad"
    exit 1
fi
