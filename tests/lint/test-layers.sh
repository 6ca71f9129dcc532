#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A file may include headers of its own module or of modules in rows above it (docs/architecture.md), and nothing above
# src/backend includes a backend's own headers.
cd "$1" || exit 99
allowed() {
    case $1 in
    base) echo base ;;
    job) echo base job ;;
    hw) echo base hw ;;
    config) echo base job hw config ;;
    tensor) echo base hw tensor ;;
    comm) echo base job hw tensor comm ;;
    backend) echo base hw tensor backend ;;
    data) echo base config comm data ;;
    model) echo base tensor model ;;
    optim) echo base comm tensor model optim ;;
    ckpt) echo base comm tensor model optim ckpt ;;
    metrics) echo base metrics ;;
    train) echo base job hw config tensor comm data model optim ckpt metrics train ;;
    tools) echo base job hw config tensor comm data model optim ckpt metrics train tools ;;
    *) echo "" ;;
    esac
}
bad=$(mktemp)
trap 'rm -f "$bad"' EXIT
find src -name '*.[ch]' | sort | while read -r file; do
    module=$(echo "$file" | cut -d/ -f2)
    ok=" $(allowed "$module") "
    grep -oE '^ *# *include "[a-z0-9-]+/' "$file" | grep -oE '[a-z0-9-]+/$' | tr -d / | sort -u | while read -r used; do
        case $ok in
        *" $used "*) ;;
        *) echo "$file includes a header of $used" ;;
        esac
    done
done >"$bad"
if [ -s "$bad" ]; then
    cat "$bad"
    exit 1
fi
