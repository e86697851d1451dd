// plotly.js is loaded once a page: the first plot asks its kernel for it, all others wait for the same copy.
function library(model, el) {
  const shared = (globalThis.encgraphPlotly ??= {});
  shared.ready ??= new Promise((resolve) => { shared.resolve = resolve; });
  if (!shared.plotly) {
    model.on("msg:custom", (message, buffers) => receive(shared, message, buffers));
    const ask = () => {
      shared.asked = Date.now();
      model.send({ wants: "plotly" });
    };
    if (!shared.asked) ask();
    // the plot that asked may have lost its kernel before the answer came
    const retry = setInterval(() => {
      if (shared.plotly || !el.isConnected) clearInterval(retry);
      else if (Date.now() - shared.asked > 5000) ask();
    }, 5000);
  }
  return shared.ready;
}

async function receive(shared, message, buffers) {
  if (message.gives !== "plotly" || shared.plotly) return;
  const unzipped = new Blob([buffers[0]]).stream().pipeThrough(new DecompressionStream("gzip"));
  const source = await new Response(unzipped).text();
  if (shared.plotly) return;
  const module = { exports: {} };
  new Function("module", "exports", "define", source)(module, module.exports, undefined);
  shared.plotly = module.exports;
  shared.resolve(shared.plotly);
}

// rows of labels above the handles; where all are taken, a handle says what it holds under the pointer or in focus
const LABEL_ROWS = 3;

function label(handles) {
  const ends = Array(LABEL_ROWS).fill(-Infinity);
  const left = (handle) => parseFloat(handle.style.left);
  for (const handle of [...handles].sort((a, b) => left(a) - left(b))) {
    const half = 4 + 3.4 * handle.firstChild.textContent.length; // half a label's width in pixels
    const row = ends.findIndex((end) => left(handle) - half > end);
    handle.classList.toggle("labelled", row >= 0);
    handle.style.setProperty("--row", Math.max(row, 0));
    if (row >= 0) ends[row] = left(handle) + half;
  }
}

function handles(model, plot, layer) {
  let sent = 0, held = null; // the handle under the pointer stays there while others follow the axis
  const send = (tokens, last) => {
    if (!last && Date.now() - sent < 120) return;
    sent = Date.now();
    model.set("tokens", tokens);
    model.save_changes();
  };
  const moved = (index, tokens, last) => {
    const [low, high] = model.get("limits");
    const set = [...model.get("tokens")];
    set[index] = Math.round(Math.min(high, Math.max(low, tokens)));
    place(layer.children[index], index, set[index]);
    label(layer.children);
    send(set, last);
  };
  const place = (handle, index, tokens) => {
    const axis = plot._fullLayout.xaxis;
    handle.style.left = `${axis._offset + axis.d2p(tokens)}px`;
    handle.style.top = `${plot._fullLayout._size.t - 24}px`;
    handle.setAttribute("aria-valuenow", tokens);
    handle.setAttribute("aria-valuetext", `${tokens} tokens`);
    handle.setAttribute("aria-label", `token budget ${index + 1}`);
    handle.firstChild.textContent = tokens.toLocaleString("en");
  };
  const make = (index) => {
    const handle = document.createElement("button");
    handle.className = "encgraph-handle";
    handle.type = "button";
    handle.setAttribute("role", "slider");
    handle.append(document.createElement("span"));
    const at = (event) => {
      const axis = plot._fullLayout.xaxis;
      return axis.p2d(event.clientX - plot.getBoundingClientRect().left - axis._offset);
    };
    handle.onpointerdown = (event) => {
      handle.focus();
      handle.setPointerCapture(event.pointerId);
      held = handle;
    };
    handle.onpointermove = (event) => { if (held === handle) moved(index, at(event), false); };
    handle.onpointerup = (event) => { if (held === handle) moved(index, at(event), true); };
    handle.onlostpointercapture = () => { held = null; all(); };
    handle.onkeydown = (event) => {
      const now = model.get("tokens")[index];
      const big = Math.max(1, Math.round(now * 0.1));
      const [low, high] = model.get("limits");
      const steps = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -big, PageUp: big,
        Home: low - now, End: high - now };
      if (!(event.key in steps)) return;
      event.preventDefault();
      event.stopPropagation();
      moved(index, now + steps[event.key], true);
    };
    return handle;
  };
  const all = () => {
    const [low, high] = model.get("limits");
    const tokens = model.get("tokens");
    while (layer.children.length > tokens.length) layer.lastChild.remove();
    while (layer.children.length < tokens.length) layer.append(make(layer.children.length));
    tokens.forEach((value, index) => {
      const handle = layer.children[index];
      handle.setAttribute("aria-valuemin", low);
      handle.setAttribute("aria-valuemax", high);
      if (handle !== held) place(handle, index, value);
    });
    label(layer.children);
  };
  return all;
}

async function render({ model, el }) {
  const box = document.createElement("div");
  box.className = "encgraph-plot";
  const plot = document.createElement("div");
  plot.setAttribute("role", "img");
  const layer = document.createElement("div");
  layer.className = "encgraph-handles";
  box.append(plot, layer);
  el.append(box);
  const label = () => plot.setAttribute("aria-label", model.get("label"));
  model.on("change:label", label);
  label();
  const plotly = await library(model, el);
  const place = handles(model, plot, layer);
  let busy = false, again = false, stale = false, begun = false;
  const draw = async () => {
    if (!model.get("drawn")) return;
    stale = !box.offsetWidth; // behind another tab: drawn once it is seen
    if (stale) return;
    if (busy) { again = true; return; }
    busy = true;
    try {
      const { data, layout } = JSON.parse(model.get("drawn"));
      // plotly sizes itself by its box, which has no height of its own
      plot.style.height = `${layout.height ?? layout.template?.layout?.height ?? 340}px`;
      const font = { ...layout.font, color: getComputedStyle(box).color };
      await plotly.react(plot, data, { autosize: true, ...layout, font }, { responsive: true, displaylogo: false, displayModeBar: false });
      if (!begun) plot.on("plotly_afterplot", place);
      begun = true;
      place();
    } finally {
      busy = false;
    }
    if (again) { again = false; draw(); }
  };
  model.on("change:drawn", draw);
  model.on("change:tokens", () => plot._fullLayout && place());
  await draw();
  const watch = new ResizeObserver(() => {
    if (stale) draw();
    else if (begun && box.offsetWidth) plotly.Plots.resize(plot);
  });
  watch.observe(box);
  const theme = new MutationObserver(draw);
  theme.observe(document.body, { attributeFilter: ["data-jp-theme-name"] });
  return () => { watch.disconnect(); theme.disconnect(); model.off("change:drawn", draw); plotly.purge(plot); };
}

export default { render };
