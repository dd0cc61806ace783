#!/usr/bin/env bash
# Opens kvscale's pages in headless Chromium, 360 and 1440 pixels wide, light and dark: nothing may be wider than the
# window, every link within the page must lead somewhere, and there must be text. Screenshots for the eye go to
# build/pages. Not part of the test suite: Chromium is 300 MB (apt-get install chromium).
#   scripts/test-pages.sh [FILE.html]...     (default: pages of a run on the built-in model)
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
command -v chromium >/dev/null || fail "expected chromium (apt-get install chromium), found none"

out=$(build_folder pages)
mkdir -p "$out"
pages=("$@")
if ((${#pages[@]} == 0)); then
  configure_and_build release kvscale
  kvscale=$(build_folder release)/src/cli/kvscale
  rm -rf "$out"/{run,run2,scan}
  step "runs on the built-in model"
  # 10 and 20 are verdicts too.
  "$kvscale" decide tiny --margin quick --buckets 128,256 --out "$out/run" >/dev/null || (($? != 1))
  "$kvscale" decide tiny --margin quick --buckets 256,512 --tasks niah_single --out "$out/run2" >/dev/null || (($? != 1))
  "$kvscale" report "$out/run" --out "$out/verdict.html"
  "$kvscale" report "$out/run" "$out/run2" --out "$out/runs.html"
  "$kvscale" scan tiny --out "$out/scan" >/dev/null || (($? != 1))
  pages=("$out/verdict.html" "$out/runs.html" "$out/scan/report.html")
fi

# browse ARGUMENTS...: Chromium without what a headless machine lacks.
browse() {
  timeout 60 chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --allow-file-access-from-files \
    --virtual-time-budget=5000 "$@" 2>/dev/null
}

# A frame as wide as the window in question: Chromium's own windows do not get narrower than 500 pixels.
frame() {
  cat >"$out/frame.html" <<HTML
<!doctype html><style>body{margin:0}iframe{border:0;width:$2px;height:2400px}</style><iframe src="file://$1"></iframe>
<script>addEventListener('load', () => {
  const page = document.querySelector('iframe').contentDocument, width = page.documentElement.scrollWidth;
  const links = [...page.querySelectorAll('a[href^="#"]')];
  const dead = links.filter(a => a.hash.length > 1 && !page.getElementById(decodeURIComponent(a.hash.slice(1))));
  document.title = 'width ' + width + ' dead ' + dead.length + ' text ' + page.body.innerText.trim().length;
});</script>
HTML
}

status=0
for page in "${pages[@]}"; do
  path=$(realpath "$page")
  for width in 360 1440; do
    frame "$path" "$width"
    found=$(browse --dump-dom "$out/frame.html" | sed -n 's/.*<title>\(.*\)<\/title>.*/\1/p')
    read -r _ wide _ dead _ text <<<"${found:-none}"
    if [[ -z ${text:-} ]] || ((wide > width || dead > 0 || text < 200)); then
      printf '%s, %s pixels: expected at most %s wide, no dead link and 200 characters, found %s\n' \
        "$page" "$width" "$width" "${found:-no page}" >&2
      status=1
    fi
    name=$out/$(basename "$(dirname "$page")")-$(basename "$page" .html)-$width
    browse --screenshot="$name.png" --window-size="$width,2400" "$out/frame.html" >/dev/null || true
    browse --screenshot="$name-dark.png" --blink-settings=preferredColorScheme=0 --window-size="$width,2400" \
      "$out/frame.html" >/dev/null || true
    printf '%s at %s: %s\n' "$(basename "$page")" "$width" "${found:-no page}"
  done
done
printf 'screenshots: %s\n' "$out"
exit "$status"
