// What the page draws and what its buttons do; comes after plot.js in the same script.
const data = JSON.parse(document.getElementById("data").textContent);
const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer;

function unpack(series) {
  return {
    name: series.name, label: series.label, limits: series.limits || [], thinned: series.thinned,
    x: new Float64Array(bytes(series.time)).map((ns) => ns / 1e9),
    ns: new Float64Array(bytes(series.value)),
    frame: new Uint32Array(bytes(series.frame)),
  };
}

const seconds = (t) => +t.toPrecision(9) + "";
const milli = (y) => +y.toPrecision(4) + "";

function latency(raw) {
  const s = unpack(raw), y = s.ns.map((ns) => ns / 1e6), axis = s.label.split(": ").pop() + ", ms";
  // A quantile's limit that holds lets some samples be beyond it: those are no violations.
  const broken = s.limits.filter((l) => !l.holds);
  const high = Math.min(Infinity, ...broken.filter((l) => l.max).map((l) => l.ns)), low = Math.max(-Infinity, ...broken.filter((l) => !l.max).map((l) => l.ns));
  const bad = (i) => s.ns[i] > high || s.ns[i] < low;
  const series = [{ x: s.x, y, frame: s.frame, colour: "--s0", bad }];
  const lost = s.ns.some((ns) => ns === Infinity);
  const canvas = $("latency-" + raw.id);
  new Plot(canvas, {
    series, lost, zero: true, marks: s.limits.map((l) => ({ y: l.ns / 1e6, text: l.rule })), xLabel: "time, s", yLabel: axis, xText: seconds, yText: milli,
    tell: (p, i) => [`frame ${s.frame[i] || "none"}, at ${s.x[i].toFixed(9)} s: ${spell(s.ns[i])}`, s.frame[i] ? `frame.number == ${s.frame[i]}` : ""],
  }, true);
  const finite = s.ns.filter((ns) => ns !== Infinity).sort();
  const share = Float64Array.from(finite, (_, i) => ((i + 1) / s.ns.length) * 100);
  const judged = s.limits.filter((l) => l.quantile !== null);
  const marks = [...s.limits.map((l) => ({ x: l.ns / 1e6, text: l.rule })), ...judged.map((l) => ({ y: l.quantile, text: "p" + l.quantile, soft: true }))];
  new Plot($("ecdf-" + raw.id), {
    series: [{ x: Float64Array.from(finite, (ns) => ns / 1e6), y: share, colour: "--s0", line: true }], zero: true, marks, xLabel: axis, yLabel: "share of samples, %", xText: milli, yText: milli,
    tell: (p, i) => [`${share[i].toFixed(2)} % of all samples are at most ${spell(finite[i])}`, ""],
  }, false);
}

function gaps(raw) {
  const s = unpack(raw), count = s.x.length - 1;
  if (count < 2) return;
  const gap = new Float64Array(count);
  for (let i = 0; i < count; i++) gap[i] = Math.max(1e-9, s.x[i + 1] - s.x[i]);
  let low = Infinity, high = 0;
  for (const g of gap) { if (g < low) low = g; if (g > high) high = g; }
  const a = Math.log10(low) - 0.02, b = Math.log10(high) + 0.02, bins = 60;
  const edges = Float64Array.from({ length: bins + 1 }, (_, i) => a + ((b - a) * i) / bins), y = new Float64Array(bins);
  for (const g of gap) y[Math.min(bins - 1, Math.max(0, Math.floor(((Math.log10(g) - a) / (b - a)) * bins)))]++;
  new Plot($("gaps"), {
    series: [{ x: edges.slice(0, bins).map((v, i) => (v + edges[i + 1]) / 2), y, edges, colour: "--s2", bars: true, unsorted: true }], zero: true,
    xLabel: "gap between datagrams, logarithmic", xText: (v) => spell(+Math.pow(10, v + 9).toPrecision(2)), yLabel: "datagrams", yText: milli, tell: () => ["", ""],
  }, false);
}

function sequence(all) {
  const series = all.map((raw, k) => { const s = unpack(raw); return { x: s.x, y: s.ns, frame: s.frame, label: s.label, ...(raw.name === "answers" ? { colour: "--s1" } : { colour: "--s0", size: 6 }) }; });
  new Plot($("sequence"), {
    series, zero: true, xLabel: "time, s", yLabel: "sequence number, from the first", xText: seconds, yText: (v) => +v.toPrecision(6) + "",
    tell: (s, i) => [`${s.label}: sequence ${s.y[i]} in frame ${s.frame[i]}, at ${s.x[i].toFixed(9)} s`, `frame.number == ${s.frame[i]}`],
  }, true);
}

for (const raw of data.latency) latency(raw);
if (data.sequence.length) {
  sequence(data.sequence);
  const answers = data.sequence.find((s) => s.name === "answers") || data.sequence[0];
  if ($("gaps")) gaps(answers);
}

if ($("lane-plot") && data.events.length) {
  const names = data.lanes, colours = { info: "--s4", notice: "--s0", bad: "--bad" };
  const series = ["info", "notice", "bad"].map((level) => {
    const mine = data.events.filter((e) => (e[2] === "routine" ? "info" : e[2]) === level);
    return { x: Float64Array.from(mine, (e) => e[0]), y: Float64Array.from(mine, (e) => names.length - 1 - e[1]), frame: mine.map((e) => e[4]), text: mine.map((e) => e[3]), colour: colours[level], size: 5 };
  }).filter((s) => s.x.length);
  new Plot($("lane-plot"), {
    series, lanes: names.slice().reverse(), xLabel: "time, s", xText: seconds, yText: (v) => names[names.length - 1 - v] || "",
    tell: (s, i) => [`${s.x[i].toFixed(6)} s, ${names[names.length - 1 - s.y[i]]}: ${s.text[i]}`, s.frame[i] ? `frame.number == ${s.frame[i]}` : ""],
  }, true);
}

if ($("gauges")) {
  const series = (k) => ({ x: Float64Array.from(data.gauges[k][1]), y: Float64Array.from(data.gauges[k][2]), colour: "--s3", line: data.gauges[k][1].length > 30, size: 5 });
  const plot = new Plot($("gauges"), {
    series: [series(0)], xLabel: "time, s", yLabel: data.gauges[0][0], xText: seconds, yText: (v) => +v.toPrecision(6) + "",
    tell: (s, i) => [`${s.x[i].toFixed(6)} s: ${s.y[i]}`, ""],
  }, true);
  $("gauge").addEventListener("change", (e) => {
    plot.model.series = [series(+e.target.value)];
    plot.model.yLabel = data.gauges[+e.target.value][0];
    plot.cursor = -1;
    plot.full = plot.extent();
    plot.view = { ...plot.full };
    plot.draw();
  });
}

document.addEventListener("click", (e) => {
  const button = e.target.closest("button");
  if (!button) return;
  if (button.dataset.copy !== undefined) copy(button, document.getElementById(button.dataset.copy).textContent);
  if (button.dataset.frame) {
    const frame = +button.dataset.frame;
    const hit = plots.filter((p) => p.linked && p.show(frame));
    if (hit.length) hit[0].canvas.scrollIntoView({ block: "center", behavior: "smooth" });
    copy(button, "frame.number == " + frame);
  }
});
const root = document.documentElement;
try { const kept = localStorage.getItem("rig-theme"); if (kept) root.dataset.theme = kept; } catch { /* file: may forbid it */ }
$("theme").addEventListener("click", () => {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("rig-theme", root.dataset.theme); } catch { /* as above */ }
  plots.forEach((p) => p.draw());
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => plots.forEach((p) => p.draw()));
const filter = $("lane-filter");
if (filter) filter.addEventListener("change", () => {
  for (const row of document.querySelectorAll("#lanes tbody tr")) row.hidden = filter.value !== "" && row.dataset.lane !== filter.value;
});
window.addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((d) => (d.open = true)));
window.rigPlots = plots;
