"""Hold the report's style sheet: one column on a phone, light and dark by the reader's choice."""

CSS = """
:root{color-scheme:light dark;--page:#fff;--card:#f7f8fa;--ink:#1b2028;--soft:#565f6b;
--line:#dfe3e8;--good:#1f7a4d;--bad:#b3401a;--note:#fdf6e7;--note-line:#e3a008;--accent:#2a7ab8}
@media (prefers-color-scheme:dark){:root{--page:#14171b;--card:#1c2026;--ink:#e7eaee;--soft:#a3acb8;
--line:#323942;--good:#5cc08d;--bad:#f08a5d;--note:#2a2416;--note-line:#b88208;--accent:#6db1e4}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);
font:15px/1.55 "Open Sans","Segoe UI",system-ui,-apple-system,"Liberation Sans",sans-serif;
font-variant-numeric:tabular-nums;-webkit-text-size-adjust:100%}
main{max-width:1180px;margin:0 auto;padding:24px 24px 64px}
h1{font-size:27px;line-height:1.25;font-weight:650;margin:4px 0 6px;letter-spacing:-.01em;
overflow-wrap:anywhere}
h2{font-size:19px;font-weight:650;margin:44px 0 12px;padding-bottom:6px;
border-bottom:1px solid var(--line)}
h3{font-size:15px;font-weight:650;margin:0 0 4px}
p{margin:0 0 10px;max-width:96ch;overflow-wrap:anywhere}
.eyebrow{color:var(--soft);font-size:13px;margin:0}
.lead{color:var(--soft);font-size:16px;max-width:96ch}
.soft{color:var(--soft)}
.scroll+.soft{margin-top:8px}
.notice{background:var(--note);border:1px solid var(--line);border-left:4px solid var(--note-line);
border-radius:6px;padding:14px 18px;margin:0 0 22px;display:grid;gap:10px 32px;
grid-template-columns:repeat(auto-fit,minmax(min(100%,400px),1fr));align-items:start}
.notice p:last-child{margin:0}
.notice table{font-size:14px}
.verdicts{display:grid;gap:14px;margin:22px 0 14px;
grid-template-columns:repeat(auto-fit,minmax(min(100%,240px),1fr))}
.verdict{background:var(--card);border:1px solid var(--line);border-top:4px solid var(--soft);
border-radius:6px;padding:14px 16px}
.verdict.good{border-top-color:var(--good)}.verdict.bad{border-top-color:var(--bad)}
.verdict.good .answer{color:var(--good)}.verdict.bad .answer{color:var(--bad)}
.question{font-size:13px;font-weight:600;color:var(--soft);margin:0}
.answer{font-size:25px;line-height:1.25;font-weight:650;margin:2px 0 8px;letter-spacing:-.01em}
.verdict ul{list-style:none;margin:0;padding:0;font-size:13.5px;line-height:1.5;color:var(--soft)}
.verdict li{overflow-wrap:anywhere}
.change{border:1px solid var(--line);border-radius:6px;padding:14px 18px}
.change h2{border:0;margin:0 0 6px;padding:0;font-size:16px}
.change ol{margin:0;padding-left:22px}.change li{margin:3px 0;max-width:96ch;overflow-wrap:anywhere}
.figures{display:grid;gap:34px 40px;grid-template-columns:minmax(0,1fr)}
@media (min-width:960px){.figures{grid-template-columns:repeat(2,minmax(0,1fr))}}
figure{margin:0;min-width:0}
figcaption{color:var(--soft);font-size:14px;margin:0 0 4px;min-height:3.1em}
.plotly-graph-div .xtick text,.plotly-graph-div .ytick text,.plotly-graph-div .xtitle,
.plotly-graph-div .ytitle,.plotly-graph-div .legendtext{fill:var(--soft)!important}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:14px}
th{text-align:left;font-weight:600;color:var(--soft);font-size:13px}
th,td{padding:6px 14px 6px 0;border-bottom:1px solid var(--line);vertical-align:top}
.num{text-align:right;white-space:nowrap}
th:last-child,td:last-child{padding-right:0}
td.num+td:not(.num),th.num+th:not(.num){padding-left:14px}
.pair{display:grid;gap:4px 40px;grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr))}
dl{display:grid;grid-template-columns:minmax(110px,max-content) 1fr;gap:4px 18px;margin:0;font-size:14px}
dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}
pre{background:var(--card);border:1px solid var(--line);border-radius:6px;padding:12px 14px;
overflow-x:auto;font:13.5px/1.5 "DejaVu Sans Mono",ui-monospace,Menlo,Consolas,monospace;
white-space:pre-wrap;overflow-wrap:anywhere;margin:0}
@media (max-width:640px){th,td{padding-right:9px}.scroll table{font-size:13px}
main{padding:16px 16px 48px}h1{font-size:22px}figcaption{min-height:0}
.verdicts{gap:10px}
table.stack thead{position:absolute;clip-path:inset(50%);width:1px;height:1px;overflow:hidden}
table.stack tr{display:grid;grid-template-columns:repeat(3,1fr);gap:4px 12px;padding:10px 0;
border-bottom:1px solid var(--line)}
table.stack td{display:block;padding:0!important;border:0;text-align:left;
overflow-wrap:anywhere;min-width:0}
table.stack td::before{content:attr(data-label);display:block;font-size:12px;color:var(--soft)}
table.stack td:last-child{grid-column:1/-1}}
"""
