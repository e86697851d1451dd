// Bins as bars, one column a rule; widths share one scale within the batch.
function element(tag, name, text = "") {
  const made = document.createElement(tag);
  made.className = name;
  made.textContent = text;
  return made;
}

// more items than this wrap onto further lines of their bin, so that each keeps room for its label
const MOST_IN_LINE = 6;

function bar(name, share, text, title) {
  const made = element("div", name, name !== "padding" || share > 0.2 ? text : "");
  made.style.flexBasis = `${Math.min(share, 1) * 100}%`;
  made.title = title;
  return made;
}

function row(label, parts, scale, last, extra = "") {
  const line = element("div", `encgraph-bin ${extra}`);
  const room = element("div", parts.length > MOST_IN_LINE ? "room wrapped" : "room");
  for (const part of parts) {
    const name = part.item ? `item${part.item === last ? " last" : ""}` : "padding";
    const what = part.item ? `item ${part.item}: ${part.tokens} tokens` : `${part.tokens} tokens of padding`;
    if (part.tokens) room.append(bar(name, part.tokens / scale, String(part.tokens), what));
  }
  line.append(element("div", "budget", label), room);
  return line;
}

// rules take items in different orders: until all are placed, only times a token compare
function total(frame, placed, all) {
  const tokens = placed.reduce((sum, item) => sum + item.tokens, 0);
  const each = tokens ? `, ${(1000 * frame.ms / tokens).toFixed(2)} us a token` : "";
  const ms = `${frame.ms.toFixed(2)} ms predicted`;
  return placed.length === all ? `all ${all} placed: ${ms}${each}`
    : `${placed.length} of ${all} placed, unfinished: ${ms} so far${each}`;
}

function lane(given, step, scale) {
  const made = element("section", "encgraph-lane");
  const frame = given.frames[Math.min(step, given.frames.length - 1)];
  const before = step ? given.frames[step - 1] : undefined;
  const listed = (f) => [...f.bins.flatMap((b) => b.items), ...f.eager].map((i) => i.item);
  const placed = [...frame.bins.flatMap((b) => b.items), ...frame.eager];
  const known = before ? listed(before) : [];
  const last = listed(frame).find((i) => !known.includes(i));
  made.append(element("h4", "", given.title), element("div", "encgraph-ms", total(frame, placed, given.frames.length - 1)));
  for (const bin of frame.bins) {
    made.append(row(bin.budget.toLocaleString("en"), [...bin.items, { tokens: bin.padding }], scale, last));
  }
  if (frame.eager.length) made.append(row("eager", frame.eager, scale, last, "eager"));
  made.append(element("p", `encgraph-said${frame.deferred ? " deferred" : ""}`, frame.said));
  return made;
}

function render({ model, el }) {
  const box = element("div", "encgraph-lanes");
  box.setAttribute("aria-live", "polite");
  el.append(box);
  const draw = () => {
    const lanes = model.get("lanes");
    const rows = lanes.flatMap((l) => l.frames).flatMap((f) => [
      ...f.bins.map((b) => b.budget), ...f.eager.map((i) => i.tokens)]);
    const scale = Math.max(1, ...rows);
    box.replaceChildren(...lanes.map((l) => lane(l, model.get("step"), scale)));
  };
  model.on("change:lanes", draw);
  model.on("change:step", draw);
  draw();
}

export default { render };
