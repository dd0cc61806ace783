#pragma once

#include <string_view>

namespace kv {

/// The style sheet of every page. Colours h0 to h6 (cells) and t0 to t6 (their text) belong to
/// heat_map.cc's steps.
inline constexpr std::string_view kPageStyle = R"css(
:root { color-scheme: light dark; --bg: #fff; --fg: #1c2127; --dim: #59636e; --line: #d3d9df;
  --panel: #f5f7f9; --link: #0b5cad; --mark: #1f6fb5; --bad: #a31621; --good: #17663a;
  --h0: #eef3f8; --h1: #d3e2f0; --h2: #aecbe5; --h3: #fbdfae; --h4: #f2b45a; --h5: #cf4a32;
  --h6: #8f1020; --tcool: #1c2127; --twarm: #1c2127; --thot: #fff; }
@media (prefers-color-scheme: dark) { :root { --bg: #14181d; --fg: #e4e8ec; --dim: #9ba6b1;
  --line: #37414b; --panel: #1c222a; --link: #7db8f0; --mark: #6fb1ec; --bad: #ff8b80;
  --good: #6fd39a; --h0: #1d2732; --h1: #223a50; --h2: #2b5275; --h3: #5f4715; --h4: #8a5d0c;
  --h5: #b53c28; --h6: #e5484d; --tcool: #e4e8ec; --twarm: #fff; --thot: #fff; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--bg); color: var(--fg);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
main { max-width: 76rem; margin: 0 auto; padding: 1rem; }
p, ul, ol, dl, pre, .outcome { max-width: 62rem; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: .5rem 0; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2rem 0 .5rem; border-bottom: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.25rem 0 .25rem; overflow-wrap: anywhere; }
p, li, dd { overflow-wrap: anywhere; }
a { color: var(--link); }
.lead { font-size: 1.15rem; }
.outcome { border-left: .4rem solid var(--mark); background: var(--panel); padding: .75rem 1rem;
  margin: 1rem 0; }
.outcome.accept { border-color: var(--good); }
.outcome.reject { border-color: var(--bad); }
.outcome p { margin: .25rem 0; }
.outcome .word { font-weight: 700; font-size: 1.25rem; }
.small, figcaption { font-size: .875rem; color: var(--dim); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; margin: .5rem 0;
  font-size: .9rem; }
dt { color: var(--dim); } dd { margin: 0; }
@media (max-width: 30rem) { dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: .4rem; } }
nav ul { list-style: none; display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; padding: 0; }
.button { display: inline-block; padding: .4rem .9rem; border: 1px solid var(--link);
  border-radius: .3rem; text-decoration: none; }
a:focus-visible, summary:focus-visible, .scroll:focus-visible { outline: 2px solid var(--mark);
  outline-offset: 2px; }
h4 { font-size: .9rem; margin: 1rem 0 .25rem; }
figure { margin: 1rem 0; }
.chart { display: block; width: 100%; max-width: 32rem; height: auto; overflow: visible;
  font-family: system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
.chart text { fill: var(--fg); font-size: 10px; }
.chart .tick, .chart .axis-label, .chart .ref, .chart .head, .chart .cell { text-anchor: middle; }
.chart .ref { text-anchor: inherit; fill: var(--dim); font-size: 9px; }
.chart .tick, .chart .axis-label { fill: var(--dim); }
.chart .note, .chart .row-label { text-anchor: end; }
.chart .head.start { text-anchor: start; fill: var(--dim); }
.chart .row, .chart .note, .chart .ref { paint-order: stroke; stroke: var(--bg);
  stroke-width: 3px; stroke-linejoin: round; }
.chart .axis { stroke: var(--dim); } .chart .grid { stroke: var(--line); stroke-width: .5; }
.chart .zero { stroke: var(--dim); } .chart .margin { stroke: var(--bad); stroke-dasharray: 4 3; }
.chart .bar { stroke: var(--mark); stroke-width: 1.5; } .chart .bar.flagged { stroke: var(--bad); }
.chart .dot { fill: var(--mark); } .chart .dot.flagged { fill: var(--bad); }
.chart rect.marked { stroke: var(--fg); stroke-width: .8; }
.chart .h0 { fill: var(--h0); } .chart .h1 { fill: var(--h1); } .chart .h2 { fill: var(--h2); }
.chart .h3 { fill: var(--h3); } .chart .h4 { fill: var(--h4); } .chart .h5 { fill: var(--h5); }
.chart .h6 { fill: var(--h6); }
.chart .t0, .chart .t1, .chart .t2 { fill: var(--tcool); }
.chart .t3, .chart .t4 { fill: var(--twarm); }
.chart .t5, .chart .t6 { fill: var(--thot); font-weight: 700; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .25rem 1rem; padding: 0;
  font-size: .875rem; margin: .25rem 0; }
.swatch { display: inline-block; width: 1.4em; height: 1.2em; line-height: 1.2em; text-align: center;
  border: 1px solid var(--line); vertical-align: middle; color: var(--twarm); }
.s0 { background: var(--h0); } .s1 { background: var(--h1); } .s2 { background: var(--h2); }
.s3 { background: var(--h3); } .s4 { background: var(--h4); }
.s5 { background: var(--h5); color: var(--thot); } .s6 { background: var(--h6); color: var(--thot); }
.scroll { overflow-x: auto; margin: .25rem 0 .75rem; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
.caption { color: var(--dim); font-size: .875rem; margin: .75rem 0 0; }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid var(--line);
  vertical-align: top; white-space: nowrap; }
thead th { border-bottom: 2px solid var(--line); } th { font-weight: 600; }
.n { text-align: right; } .b { white-space: normal; overflow-wrap: anywhere; min-width: 6rem; }
tr:target, li:target { outline: 2px solid var(--mark); }
details { margin: .75rem 0; } summary { cursor: pointer; color: var(--link); }
pre { background: var(--panel); padding: .6rem .8rem; overflow-x: auto; font-size: .875rem;
  white-space: pre-wrap; overflow-wrap: anywhere; }
code { font-size: .92em; overflow-wrap: anywhere; }
.rule { font-weight: 600; }
@media print { body { font-size: 11px; } .scroll { overflow: visible; } nav, .button { display: none; }
  th, td { white-space: normal; padding: .15rem .35rem; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  figure, tr { break-inside: avoid; } }
@media print and (prefers-color-scheme: dark) { :root { --bg: #fff; --fg: #000; --dim: #444;
  --line: #bbb; --panel: #f5f5f5; --link: #000; --mark: #1f6fb5; --bad: #a31621; --good: #17663a;
  --h0: #eef3f8; --h1: #d3e2f0; --h2: #aecbe5; --h3: #fbdfae; --h4: #f2b45a; --h5: #cf4a32;
  --h6: #8f1020; --tcool: #1c2127; --twarm: #1c2127; --thot: #fff; } }
)css";

}  // namespace kv
