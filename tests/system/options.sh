#!/bin/sh
# options.sh -- every option of the published models changes what is computed,
# or is named as one that does not.
. "$(dirname "$0")/lib.sh"
models=$DPC_HOME/tests/models
"$dpc" eval --cases "$models/dalle2_options.lua" --json > out 2> log
"$dpc" check "$models/dalle2_declared.lua" 2>&1 | sed -n 's/^option //p' > declared

# "case|all its numbers", one a case.
sed -n 's/.*"case": "\([^"]*\)".*"got": \([^,]*\),.*/\1|\2/p' out |
    awk -F'|' '{ n[$1] = n[$1] " " $2 } END { for (c in n) print c "|" n[c] }' |
    sort > numbers
verdicts=$(awk -F'|' '
    { split($1, w, " "); group[$1] = w[1]; n[$1] = $2 }
    w[2] == "base" { base[w[1]] = $2 }
    END { for (c in n) {
        split(c, w, " ")
        if (w[2] == "base") continue
        same = n[c] == base[w[1]]
        if (same != (w[3] == "ignored"))
            print c ": " (same ? "changes nothing" : "changes a number")
        else good++
    } print "good " good + 0 }' numbers)
bad=$(echo "$verdicts" | grep -v '^good' | tr '\n' ';')
good=$(echo "$verdicts" | sed -n 's/^good //p')
note "$good options"
if [ -z "$bad" ] && [ "$good" -gt 150 ]; then
    ok "each option changes what is computed, or is said to be ignored"
else not_ok "each option changes what is computed, or is said to be ignored" "$bad $good"; fi

# Of the constructors' options none is without a case; those of text CLS tokens
# and of losses that are not built are errors in tests/error.
cut -d'|' -f1 numbers | awk '{ print $2 }' | sort -u > tried
printf '%s\n' use_visual_ssl use_vgg_and_gan vq_commitment_weight >> tried
missing=$(while read -r c key; do
    grep -qx "$key" tried || printf '%s.%s ' "$c" "$key"
done < declared)
if [ -s declared ] && [ -z "$missing" ]; then ok "no option is without a case"
else not_ok "no option is without a case" "$missing"; fi
