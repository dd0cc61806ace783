#!/usr/bin/env bash
# Holds kvscale against a real vLLM (CPU build, AVX-512) over HTTP: fingerprints and decisions. Not part of the suite: half an hour on an idle machine of 2 cores.
#   scripts/test-engines.sh MODEL_DIR [fingerprint|decide|selective]... (default: the first two)
# MODEL_DIR: SmolLM2-135M-Instruct as a Hugging Face directory; for selective Qwen2.5-Coder-1.5B. Environment: KVSCALE (the program), KVSCALE_VLLM (virtual
# environment with vLLM, default ~/.cache/kvscale/vllm), KVSCALE_ENGINES_FOLDER (for logs and runs; given again, decisions go on there).
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

model=$(realpath "${1:?usage: test-engines.sh MODEL_DIR [fingerprint|decide|selective]...}")
shift
parts=("$@")
(($# > 0)) || parts=(fingerprint decide)
kvscale=$(realpath "${KVSCALE:-$(build_folder release)/src/cli/kvscale}")
venv=${KVSCALE_VLLM:-${XDG_CACHE_HOME:-$HOME/.cache}/kvscale/vllm}
[[ -x $venv/bin/python ]] || fail "no vLLM at $venv: set KVSCALE_VLLM"
folder=${KVSCALE_ENGINES_FOLDER:-$(mktemp -d)}
mkdir -p "$folder"
cd "$folder"
export VLLM_CPU_KVCACHE_SPACE=1 HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 OMP_WAIT_POLICY=passive
vllm="$venv/bin/python -m vllm.entrypoints.openai.api_server --enforce-eager --dtype bfloat16 --max-model-len 2048"

declare -A servers=()
stop() {
  local pid=${servers[$1]:-}
  [[ -z $pid ]] || { kill -- "-$pid" 2>/dev/null && wait "$pid" 2>/dev/null || true; }
  unset "servers[$1]"
}
trap 'for one in "${!servers[@]}"; do stop "$one"; done' EXIT

# start NAME PORT DIRECTORY [FLAG...]: in a process group of its own; returns when it is healthy.
start() {
  local name=$1 port=$2 directory=$3
  shift 3
  # shellcheck disable=SC2086
  setsid nice $vllm --model "$directory" --port "$port" "$@" >"$name.log" 2>&1 &
  servers[$name]=$!
  for _ in $(seq 900); do
    ! curl -sf "127.0.0.1:$port/health" >/dev/null || return 0
    kill -0 "${servers[$name]}" 2>/dev/null || fail "$name: the server ended ($folder/$name.log)"
    sleep 1
  done
  fail "$name: not healthy within 15 minutes ($folder/$name.log)"
}

# swap_scales DIRECTORY: K's and V's scales of the even layers change places.
swap_scales() {
  python3 - "$1" <<'PY'
import json, pathlib, re, struct, sys
folder = pathlib.Path(sys.argv[1])
places = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
for name in {file for tensor, file in places.items() if tensor.endswith("k_scale")}:
    data = (folder / name).read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + size])
    for tensor in head:
        layer = re.search(r"layers\.(\d+)\.self_attn\.k_scale$", tensor)
        if layer and int(layer[1]) % 2 == 0:
            k, v = head[tensor], head[tensor.replace("k_scale", "v_scale")]
            k["data_offsets"], v["data_offsets"] = v["data_offsets"], k["data_offsets"]
    text = json.dumps(head, separators=(",", ":")).encode().ljust(size)
    (folder / name).unlink()  # it is a link to the other export's
    (folder / name).write_bytes(data[:8] + text + data[8 + size:])
PY
}

# fingerprint NAME EXPECTED DIRECTORY [FLAG...]: what verify says of a server beside the control at port 8701.
fingerprint() {
  local name=$1 expected=$2 directory=$3 said
  shift 3
  start "$name" 8702 "$directory" "$@"
  "$kvscale" verify "$model" --control http://127.0.0.1:8701 --candidate http://127.0.0.1:8702 --scales per_head \
    --record "$name.jsonl" >"$name.out" 2>"$name.err" || true
  said=$(head -n 1 "$name.out")
  stop "$name"
  [[ $said == *"$expected"* ]] || fail "fingerprint of $name: expected \"$expected\", found \"$said\" ($folder/$name.out)"
  step "fingerprint of $name: $said, $(grep -o '[0-9]* tokens' "$name.out" | sed -n 2p)"
}

all_fingerprints() {
  step "fingerprint: calibrated exports"
  head -c 8000 /usr/share/common-licenses/GPL-3 | tail -c 5000 >text.txt
  [[ -f calibration/scales.json ]] || "$kvscale" calibrate "$model" --prompts text.txt --out calibration >calibration.log 2>&1
  local layout
  for layout in tensor head; do
    [[ -d per_$layout ]] ||
      "$kvscale" export "$model" --scales calibration/scales.json --for vllm --layout "fp8_$layout" --out "per_$layout" >"export_$layout.log" 2>&1
  done
  [[ -d swapped ]] || { cp -rl per_tensor swapped && swap_scales swapped; }
  start control 8701 "$model"
  fingerprint auto "not quantized" "$model"
  fingerprint scale1 "runs: scale 1.0, truncated" "$model" --kv-cache-dtype fp8
  fingerprint tensor "runs: one scale per tensor, the largest of its heads', truncated" per_tensor
  fingerprint head "runs: one scale per tensor, the largest of its heads', truncated" per_head
  fingerprint e5m2 "runs: E5M2 with scale 1.0, truncated" "$model" --kv-cache-dtype fp8_e5m2
  fingerprint swapped "runs: scales of K and V swapped in the even layers, truncated" swapped
  fingerprint token_head "none of these" "$model" --kv-cache-dtype fp8_per_token_head
  stop control
}

# decide OUT ARM...: launches an arm after the other; prints the exit code.
decide() {
  local out=$1 arms=() arm
  shift
  for arm in "$@"; do arms+=(--candidate "$arm"); done
  nice "$kvscale" decide "$model" --engine vllm:cpu --launch "exec $vllm --model {model} --port {port} {flags}" "${arms[@]}" --out "$out" --margin quick \
    --buckets "${KVSCALE_ENGINES_BUCKET:-512}" --documents "${KVSCALE_ENGINES_DOCUMENTS:-50}" --questions 4 --tasks "${KVSCALE_ENGINES_TASKS:-niah_single,kv_recall}" \
    >"$out.txt" 2>"$out.err" && echo 0 || echo $?
}

# holds OUT FIELD EXPECTED: of decision.json.
holds() {
  local found
  found=$(python3 -c "import json,sys; print(json.load(open(sys.argv[1] + '/decision.json'))[sys.argv[2]])" "$1" "$2")
  [[ $found == "$3" ]] || fail "$1: $2: expected $3, found $found ($folder)"
}

names() { grep -q "$2" "$1/decision.json" || fail "$1: decision.json does not say: $2 ($folder)"; }

decide_harmless() {
  step "decide: scale 1.0, calibrated per tensor, per token and head"
  local code
  code=$(decide smollm2 fp8_scale1 fp8_tensor fp8_token_head)
  [[ -f smollm2/decision.json ]] || { tail -n 20 smollm2.err; fail "no verdict, exit code $code ($folder)"; }
  names smollm2 'fp8_token_head: .* as with FP8 without inline scales'
  names smollm2 'fp8_token_head: CPU_ATTN accepts it and stores garbage (prefill lane: '
  holds smollm2 outcome KEEP_SCALE_ONE
  [[ $code == 0 ]] || fail "expected exit code 0, found $code ($folder)"
}

decide_selective() {
  step "decide: a model that FP8 breaks in one layer"
  local code
  code=$(decide selective)
  [[ -f selective/decision.json ]] || { tail -n 20 selective.err; fail "no verdict, exit code $code ($folder)"; }
  holds selective outcome SELECTIVE_BF16
  holds selective bf16_layers "[0]"
  names selective 'kv-cache-dtype-skip-layers'
}

for part in "${parts[@]}"; do
  case $part in
    fingerprint) all_fingerprints ;;
    decide) decide_harmless ;;
    selective) decide_selective ;;
    *) fail "expected fingerprint, decide or selective, found $part" ;;
  esac
done
[[ -z $(pgrep -f "$folder" || true) ]] || fail "a server outlived its run ($folder)"
step "engines: all held ($folder)"
