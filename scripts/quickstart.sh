#!/usr/bin/env bash
# From a bare Debian 12 machine to a verdict on a real model:
#   scripts/quickstart.sh [smollm2|qwen2.5-0.5b|qwen2.5-1.5b|tiny]     (default: smollm2)
# Installs packages, builds kvscale, fetches the model, then runs `kvscale scan` and `kvscale decide`. Reports go to
# kvscale-quickstart-MODEL/ in the current folder; the same command resumes there. Models are kept in
# ${XDG_CACHE_HOME:-~/.cache}/kvscale/models.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

name=${1:-smollm2}
case $name in
  smollm2 | qwen2.5-0.5b | qwen2.5-1.5b | tiny) ;;
  *) fail "expected smollm2, qwen2.5-0.5b, qwen2.5-1.5b or tiny, found '$name'" ;;
esac
(($# <= 1)) || fail "expected at most one argument, found $#"

"$KV_ROOT/scripts/install-packages.sh"
configure_and_build release kvscale
kvscale=$(build_folder release)/src/cli/kvscale

# fetch NAME: prints the path of the model's file. 2 = the packages cannot be had, anything else but 0 is a fault.
fetch() {
  local path
  path=$("$KV_ROOT/scripts/fetch-model.sh" "$1" "${XDG_CACHE_HOME:-$HOME/.cache}/kvscale/models") || return $?
  tail -n 1 <<<"$path"
}

model=tiny
fell_back=
if [[ $name != tiny ]]; then
  step "fetch $name"
  status=0
  model=$(fetch "$name") || status=$?
  case $status in
    0) ;;
    2)
      fell_back="$name could not be fetched: everything below is about the built-in model 'tiny', not about $name"
      model=tiny
      name=tiny
      step "WARNING: $fell_back"
      ;;
    *) fail "scripts/fetch-model.sh $name ended with $status" ;;
  esac
fi

out=$PWD/kvscale-quickstart-$name
mkdir -p "$out"

step "kvscale scan $model"
"$kvscale" scan "$model" --out "$out/scan"

# 30 documents are the fewest that the interval with clusters is trusted for; 7 questions each make 210 a bucket. Six documents
# asked twice give the 40 answers a bucket that the harness's own noise is judged on.
decide=(--margin quick --buckets "256,512,2048" --documents 30 --questions 7 --set aa_documents=6)
step "kvscale decide $model ${decide[*]}"
status=0
"$kvscale" decide "$model" "${decide[@]}" --out "$out/decide" || status=$?
case $status in
  0) meaning="an FP8 layout is accepted: deploy it as the verdict says" ;;
  10) meaning="inconclusive: the verdict says which evidence is missing and which command gets it" ;;
  20) meaning="no FP8 layout is good enough for this model on these prompts" ;;
  *) fail "kvscale decide ended with $status" ;;
esac

cat <<END

decide ended with $status: $meaning
scan    $out/scan/report.html
verdict $out/decide/report.html
        $out/decide/decision.json
kvscale $kvscale
took    $((SECONDS / 60)) min $((SECONDS % 60)) s, packages, build and downloads included
END
[[ -z $fell_back ]] || step "WARNING: $fell_back"
