#!/usr/bin/env bash
# Has a model write a report in five parts and mails it, once. Kill it as often as you like
# (kill -9, a power cut) and run it again: no answer is asked for again, no mail is sent twice.
set -euo pipefail
export DALSEGNO_RUN="report on ${1:-whales}"
step() { dalsegno step --name "$@"; }

report=""
for part in 1 2 3 4 5; do
  report+=$(step "write-$part" --effect read-only --retry 3 -- ask-model "part $part of the $DALSEGNO_RUN")
done
step send --probe was-mail-sent -- send-mail "$report"
dalsegno end --result "$report"
