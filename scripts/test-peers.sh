#!/usr/bin/env bash
# Holds kvscale against other implementations on real models: tokenizers, logits and perplexity of transformers. Then, by
# scripts/test-scale-peers.sh, against the tools and the engine that write and read scales.
#   scripts/test-peers.sh [--write-goldens] [smollm2|qwen2.5-0.5b|qwen2.5-1.5b|gemma3-270m]...     (default: all four)
# The peers are Python packages in pinned versions (tests/peers/requirements.txt, 6 GB), installed into a virtual
# environment of their own; nothing of kvscale needs them. --write-goldens also runs every tests/*/make_golden.py, which
# records what the peers say into tests/golden/. Takes from minutes to hours, by the machine. Environment and models are
# kept in ${XDG_CACHE_HOME:-~/.cache}/kvscale. Ends with 1 when a peer disagrees.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

writes_goldens=
if [[ ${1:-} == --write-goldens ]]; then
  writes_goldens=yes
  shift
fi
names=("$@")
(($# > 0)) || names=(smollm2 qwen2.5-0.5b qwen2.5-1.5b gemma3-270m)

cache=${XDG_CACHE_HOME:-$HOME/.cache}/kvscale
python=$cache/peers/bin/python
requirements=$KV_ROOT/tests/peers/requirements.txt
installed=$cache/peers/kvscale-requirements.txt  # what the environment was filled with

install_peers() {
  if cmp -s "$requirements" "$installed"; then
    step "peers: $cache/peers has the pinned versions"
    return
  fi
  step "peers: installing into $cache/peers: $(tr '\n' ' ' <"$requirements")"
  [[ -x $python ]] || python3 -m venv "$cache/peers"
  "$python" -m pip install --quiet --disable-pip-version-check --requirement "$requirements"
  cp "$requirements" "$installed"
}

# peer COMMAND...: runs one; a disagreement is kept for the end, so that the others run too.
disagreed=()
peer() {
  step "$*"
  nice "$@" || disagreed+=("$(basename "$2")")
}

"$KV_ROOT/scripts/install-packages.sh"
install_peers
configure_and_build release kvscale kv_tokenize kv_dump_logits
models=()
for name in "${names[@]}"; do
  step "fetch $name"
  path=$("$KV_ROOT/scripts/fetch-model.sh" "$name" "$cache/models" | tail -n 1)
  models+=("$path")
done

# Threads of kvscale and of torch sleep instead of spinning: both programs run on machines that do other things too.
export OMP_WAIT_POLICY=passive
tests=$(build_folder release)/tests
peer "$python" "$KV_ROOT/tests/text/peer_tokenizers.py" "$tests/text/kv_tokenize" "${models[@]}"
peer "$python" "$KV_ROOT/tests/peers/compare_logits.py" "$tests/peers/kv_dump_logits" "${models[@]}"
peer "$python" "$KV_ROOT/tests/peers/compare_perplexity.py" "$(build_folder release)/src/cli/kvscale" "${models[@]}"
peer bash "$KV_ROOT/scripts/test-scale-peers.sh" ${writes_goldens:+--write-goldens}

if [[ -n $writes_goldens ]]; then
  for script in "$KV_ROOT"/tests/*/make_golden.py; do
    room=$(basename "$(dirname "$script")")
    step "$script $KV_ROOT/tests/golden/$room"
    "$python" "$script" "$KV_ROOT/tests/golden/$room" "${models[@]}"
  done
  step "recorded; git status tests/golden says what changed"
fi

printf '\npeers: %d min %02d s\n' $((SECONDS / 60)) $((SECONDS % 60))
((${#disagreed[@]} == 0)) || fail "disagreement in ${disagreed[*]}"
echo "all peers agree"
