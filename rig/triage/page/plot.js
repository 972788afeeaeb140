"use strict";
// Plots on canvas without any library: drag to zoom, wheel to zoom at the pointer, double click or 0 to reset, arrows
// to move, click or Enter to name a point. Points that fall on one pixel are drawn once, so 100,000 stay fluid.
const $ = (id) => document.getElementById(id);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function spell(ns) {
  if (ns === Infinity) return "lost";
  const size = Math.abs(ns);
  for (const [unit, scale] of [["s", 1e9], ["ms", 1e6], ["us", 1e3]]) {
    if (size >= scale) return +(ns / scale).toPrecision(6) + " " + unit;
  }
  return ns + " ns";
}

function ticks(low, high, most) {
  const span = high - low || 1;
  const raw = span / Math.max(1, most);
  const power = Math.pow(10, Math.floor(Math.log10(raw)));
  const step = [1, 2, 5, 10].map((k) => k * power).find((s) => s >= raw);
  const found = [];
  for (let v = Math.ceil(low / step) * step; v <= high + step * 1e-9; v += step) found.push(Math.abs(v) < step * 1e-9 ? 0 : v);
  return found;
}

const plots = [], MANY = 3000, LOST_Y = 27; // lost samples have a row of their own, below the name of the axis

class Plot {
  // model: {series: [{x, y, colour, size, bad(i), line}], marks: [{x or y, text, soft}], xLabel, yLabel, xText, yText, tell(s, i)}
  constructor(canvas, model, linked) {
    Object.assign(this, { canvas, model, linked, cursor: -1, cursorSeries: 0 });
    this.out = $(canvas.id + "-out");
    this.full = this.extent();
    this.view = { ...this.full };
    canvas.tabIndex = 0;
    this.listen();
    plots.push(this);
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  extent() {
    let [x0, x1, y0, y1] = [Infinity, -Infinity, Infinity, -Infinity];
    for (const s of this.model.series) {
      for (let i = 0; i < s.x.length; i++) {
        const x = s.x[i], y = s.y[i];
        if (x < x0) x0 = x;
        if (x > x1) x1 = x;
        if (y < y0) y0 = y;
        if (y > y1 && y !== Infinity) y1 = y;
      }
    }
    for (const m of this.model.marks || []) {
      if (m.y !== undefined && m.y < 4 * y1) y1 = Math.max(y1, m.y);
      if (m.x !== undefined && m.x < 4 * x1) x1 = Math.max(x1, m.x);
    }
    if (!(x1 >= x0)) [x0, x1] = [0, 1];
    if (!(y1 >= y0)) [y0, y1] = [0, 1];
    if (this.model.zero) y0 = Math.min(0, y0);
    if (this.model.lanes) [y0, y1] = [-0.6, this.model.lanes.length - 0.4];
    const px = (x1 - x0 || 1) * 0.02, py = this.model.lanes ? 0 : (y1 - y0 || 1) * 0.07;
    return { x0: x0 - px, x1: x1 + px, y0: y0 - (y0 === 0 ? 0 : py), y1: y1 + py };
  }

  frame() {
    const box = this.canvas.getBoundingClientRect();
    return { l: this.model.lanes ? 112 : box.width < 500 ? 52 : 66, r: 12, t: this.model.lost ? 38 : this.model.yLabel ? 22 : 10, b: 34, w: box.width, h: box.height };
  }

  draw() {
    const { canvas, model, view } = this;
    const f = this.frame(), ratio = window.devicePixelRatio || 1;
    if (f.w < 2) return;
    if (canvas.width !== Math.round(f.w * ratio) || canvas.height !== Math.round(f.h * ratio)) {
      canvas.width = Math.round(f.w * ratio);
      canvas.height = Math.round(f.h * ratio);
    }
    const c = canvas.getContext("2d");
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, f.w, f.h);
    const X = (x) => f.l + ((x - view.x0) / (view.x1 - view.x0)) * (f.w - f.l - f.r);
    const Y = (y) => f.h - f.b - ((y - view.y0) / (view.y1 - view.y0)) * (f.h - f.t - f.b);
    Object.assign(this, { X, Y });
    c.font = "12px system-ui, sans-serif";
    c.lineWidth = 1;
    c.strokeStyle = css("--grid");
    c.fillStyle = css("--soft");
    c.textBaseline = "middle";
    c.textAlign = "right";
    for (const t of model.lanes ? model.lanes.map((_, i) => i) : ticks(view.y0, view.y1, f.h / 45)) {
      c.beginPath(); c.moveTo(f.l, Y(t)); c.lineTo(f.w - f.r, Y(t)); c.stroke();
      c.fillText(model.yText(t), f.l - 5, Y(t));
    }
    c.textAlign = "center";
    c.textBaseline = "top";
    for (const t of ticks(view.x0, view.x1, f.w / 95)) {
      c.beginPath(); c.moveTo(X(t), f.t); c.lineTo(X(t), f.h - f.b); c.stroke();
      const text = model.xText(t), half = c.measureText(text).width / 2;
      c.fillText(text, Math.min(Math.max(X(t), half), f.w - half), f.h - f.b + 5);
    }
    c.textAlign = "right";
    c.fillText(model.xLabel, f.w - f.r, f.h - 14);
    if (model.yLabel) { c.textAlign = "left"; c.fillText(model.yLabel, 4, 4); }
    c.save();
    c.beginPath(); c.rect(f.l, f.t - (model.lost ? 18 : 0), f.w - f.l - f.r, f.h - f.t - f.b + (model.lost ? 18 : 0)); c.clip();
    model.series.forEach((s) => this.series(c, f, s));
    for (const mark of model.marks || []) this.mark(c, f, mark);
    if (this.cursor >= 0) this.circle(c, f);
    if (this.drag) {
      c.fillStyle = css("--accent");
      c.globalAlpha = 0.15;
      c.fillRect(Math.min(this.drag.from, this.drag.to), f.t, Math.abs(this.drag.to - this.drag.from), f.h - f.t - f.b);
    }
    c.restore();
    if (model.lost) {
      c.textAlign = "right"; c.textBaseline = "middle"; c.fillStyle = css("--bad");
      c.fillText("lost", f.l - 5, LOST_Y);
    }
  }

  mark(c, f, mark) {
    const colour = css(mark.soft ? "--soft" : "--bad"), upright = mark.x !== undefined;
    const at = upright ? this.X(mark.x) : this.Y(mark.y), width = c.measureText(mark.text).width + 6;
    c.strokeStyle = colour;
    c.setLineDash([6, 4]);
    c.beginPath();
    if (upright) { c.moveTo(at, f.t); c.lineTo(at, f.h - f.b); } else { c.moveTo(f.l, at); c.lineTo(f.w, at); }
    c.stroke();
    c.setLineDash([]);
    // The label has paper of its own, or points would run through it.
    const left = upright ? Math.min(at + 4, f.w - f.r - width) : f.l + 4, top = upright ? f.h - f.b - 20 : at < f.t + 19 ? at + 2 : at - 18;
    c.fillStyle = css("--card");
    c.fillRect(left, top, width, 16);
    c.fillStyle = colour;
    c.textAlign = "left"; c.textBaseline = "middle";
    c.fillText(mark.text, left + 3, top + 8);
  }

  span(s) {
    const find = (v) => { let a = 0, b = s.x.length; while (a < b) { const m = (a + b) >> 1; if (s.x[m] < v) a = m + 1; else b = m; } return a; };
    return s.unsorted ? [0, s.x.length] : [Math.max(0, find(this.view.x0) - 1), Math.min(s.x.length, find(this.view.x1) + 1)];
  }

  series(c, f, s) {
    const [from, to] = this.span(s);
    const good = css(s.colour), bad = css("--bad");
    if (s.bars) {
      c.fillStyle = good;
      for (let i = from; i < to; i++) {
        if (!s.y[i]) continue;
        const left = this.X(s.edges[i]), right = this.X(s.edges[i + 1]);
        c.fillRect(left + 0.5, this.Y(s.y[i]), Math.max(1, right - left - 1), f.h - f.b - this.Y(s.y[i]));
      }
      return;
    }
    if (s.line) {
      c.strokeStyle = good; c.lineWidth = 2; c.beginPath();
      let last = -1, open = false;
      for (let i = from; i < to; i++) {
        const px = this.X(s.x[i]);
        if (open && i < to - 1 && px - last < 0.7) continue;
        last = px;
        if (open) c.lineTo(px, this.Y(s.y[i])); else { c.moveTo(px, this.Y(s.y[i])); open = true; }
      }
      c.stroke(); c.lineWidth = 1;
      return;
    }
    const later = [];
    if (to - from > MANY) this.cloud(c, f, s, from, to, good, bad, later);
    else {
      const size = s.size || 3;
      c.fillStyle = good;
      for (let i = from; i < to; i++) {
        if (s.y[i] === Infinity) later.push(i);
        else if (s.bad && s.bad(i)) { c.fillStyle = bad; c.fillRect(this.X(s.x[i]) - 2, this.Y(s.y[i]) - 2, 4, 4); c.fillStyle = good; }
        else c.fillRect(this.X(s.x[i]) - size / 2, this.Y(s.y[i]) - size / 2, size, size);
      }
    }
    c.strokeStyle = bad;
    let lastLost = -9;
    for (const i of later) {
      const px = this.X(s.x[i]);
      if (px - lastLost < 1) continue;
      lastLost = px;
      c.beginPath(); c.moveTo(px - 4, LOST_Y - 4); c.lineTo(px + 4, LOST_Y + 4); c.moveTo(px + 4, LOST_Y - 4); c.lineTo(px - 4, LOST_Y + 4); c.stroke();
    }
  }

  // Many points: pixels are set in memory and shown at once, which costs the same however they are spread.
  cloud(c, f, s, from, to, good, bad, later) {
    const ratio = window.devicePixelRatio || 1, w = Math.round(f.w * ratio), h = Math.round(f.h * ratio);
    const image = new ImageData(w, h), pixel = new Uint32Array(image.data.buffer), dot = Math.max(2, Math.round((s.size > 3 ? s.size : 2) * ratio));
    const word = (hex) => 0xff000000 | (parseInt(hex.slice(5, 7), 16) << 16) | (parseInt(hex.slice(3, 5), 16) << 8) | parseInt(hex.slice(1, 3), 16);
    const colours = [word(good), word(bad)], { x0, x1, y0, y1 } = this.view;
    const kx = ((f.w - f.l - f.r) / (x1 - x0)) * ratio, bx = f.l * ratio, ky = ((f.h - f.t - f.b) / (y1 - y0)) * ratio, by = (f.h - f.b) * ratio;
    for (let i = from; i < to; i++) {
      const y = s.y[i];
      if (y === Infinity) { later.push(i); continue; }
      const px = Math.round(bx + (s.x[i] - x0) * kx - dot / 2), py = Math.round(by - (y - y0) * ky - dot / 2);
      if (px < 0 || py < 0 || px + dot >= w || py + dot >= h) continue;
      const colour = colours[s.bad && s.bad(i) ? 1 : 0];
      for (let dy = 0; dy < dot; dy++) for (let dx = 0; dx < dot; dx++) pixel[(py + dy) * w + px + dx] = colour;
    }
    const layer = new OffscreenCanvas(w, h);
    layer.getContext("2d").putImageData(image, 0, 0);
    c.drawImage(layer, 0, 0, f.w, f.h);
  }

  circle(c) {
    const s = this.model.series[this.cursorSeries];
    if (!s) return;
    const y = s.y[this.cursor], py = y === Infinity ? LOST_Y : this.Y(y);
    c.strokeStyle = css("--ink"); c.lineWidth = 2;
    c.beginPath(); c.arc(this.X(s.x[this.cursor]), py, 7, 0, 7); c.stroke(); c.lineWidth = 1;
  }

  nearest(px, py) {
    let best = Infinity;
    this.model.series.forEach((s, k) => {
      if (s.bars) return;
      const [from, to] = this.span(s);
      for (let i = from; i < to; i++) {
        const dx = this.X(s.x[i]) - px, dy = (s.y[i] === Infinity ? LOST_Y : this.Y(s.y[i])) - py, d = dx * dx + dy * dy;
        if (d < best) { best = d; this.cursor = i; this.cursorSeries = k; }
      }
    });
    this.tell();
  }

  tell() {
    const s = this.model.series[this.cursorSeries];
    if (!this.out || !s || this.cursor < 0) return;
    this.out.textContent = "";
    const [text, filter] = this.model.tell(s, this.cursor);
    this.out.append(text + " ");
    if (filter) this.out.append(...copyable(filter));
    this.draw();
  }

  zoom(x0, x1) {
    if (!(x1 > x0)) return;
    this.view.x0 = x0; this.view.x1 = x1;
    if (this.linked) {
      for (const p of plots) if (p.linked && p !== this) { p.view.x0 = x0; p.view.x1 = x1; p.draw(); }
    }
    this.draw();
  }

  reset() {
    Object.assign(this.view, this.full);
    if (this.linked) for (const p of plots) if (p.linked) { Object.assign(p.view, p.full); p.draw(); }
    this.draw();
  }

  step(by) {
    const s = this.model.series[this.cursorSeries];
    if (!s || s.bars || !s.x.length) return;
    this.cursor = Math.min(s.x.length - 1, Math.max(0, this.cursor + by));
    const x = s.x[this.cursor], width = this.view.x1 - this.view.x0;
    if (x < this.view.x0 || x > this.view.x1) this.zoom(x - width / 2, x + width / 2);
    this.tell();
  }

  listen() {
    const c = this.canvas, at = (e) => { const b = c.getBoundingClientRect(); return [e.clientX - b.left, e.clientY - b.top]; };
    const value = (px) => { const f = this.frame(); return this.view.x0 + ((px - f.l) / (f.w - f.l - f.r)) * (this.view.x1 - this.view.x0); };
    c.addEventListener("pointerdown", (e) => { if (e.button) return; const [x] = at(e); this.drag = { from: x, to: x }; c.setPointerCapture(e.pointerId); });
    c.addEventListener("pointermove", (e) => { if (!this.drag) return; this.drag.to = at(e)[0]; if (Math.abs(this.drag.to - this.drag.from) > 4) this.draw(); });
    c.addEventListener("pointercancel", () => { this.drag = null; this.draw(); });
    c.addEventListener("pointerup", (e) => {
      const d = this.drag; this.drag = null;
      if (!d) return;
      if (Math.abs(d.to - d.from) > 6) this.zoom(value(Math.min(d.from, d.to)), value(Math.max(d.from, d.to)));
      else { const [x, y] = at(e); this.nearest(x, y); }
    });
    c.addEventListener("dblclick", () => this.reset());
    c.addEventListener("wheel", (e) => {
      if (!e.ctrlKey && !e.shiftKey && document.activeElement !== c) return; // else the page must scroll
      e.preventDefault();
      const x = value(at(e)[0]), k = Math.pow(1.0015, e.deltaY);
      this.zoom(x - (x - this.view.x0) * k, x + (this.view.x1 - x) * k);
    }, { passive: false });
    c.addEventListener("keydown", (e) => {
      const w = this.view.x1 - this.view.x0, mid = (this.view.x0 + this.view.x1) / 2;
      const keys = {
        ArrowLeft: () => this.zoom(this.view.x0 - w / 5, this.view.x1 - w / 5), ArrowRight: () => this.zoom(this.view.x0 + w / 5, this.view.x1 + w / 5),
        "+": () => this.zoom(mid - w / 4, mid + w / 4), "=": () => this.zoom(mid - w / 4, mid + w / 4), "-": () => this.zoom(mid - w, mid + w),
        0: () => this.reset(), Escape: () => this.reset(), n: () => this.step(1), p: () => this.step(-1),
        b: () => this.nextBad(), Enter: () => (this.cursor < 0 ? this.nextBad() : this.tell()),
      };
      if (keys[e.key] && !e.ctrlKey && !e.metaKey) { e.preventDefault(); keys[e.key](); }
    });
    for (const button of document.querySelectorAll(`[data-reset="${c.id}"]`)) button.addEventListener("click", () => this.reset());
    for (const button of document.querySelectorAll(`[data-bad="${c.id}"]`)) button.addEventListener("click", () => { c.focus(); this.nextBad(); });
  }

  nextBad() {
    for (let k = 0; k < this.model.series.length; k++) {
      const s = this.model.series[k];
      if (!s.bad) continue;
      for (let j = 1; j <= s.x.length; j++) {
        const i = (Math.max(-1, this.cursor) + j) % s.x.length;
        if (s.y[i] === Infinity || s.bad(i)) { this.cursorSeries = k; this.cursor = i - 1; this.step(1); return; }
      }
    }
    this.step(1);
  }

  show(frame) {
    let found = false;
    this.model.series.forEach((s, k) => {
      const i = s.frame ? s.frame.indexOf(frame) : -1;
      if (i < 0) return;
      found = true;
      this.cursorSeries = k; this.cursor = i;
      const width = Math.min(this.view.x1 - this.view.x0, (this.full.x1 - this.full.x0) / 8);
      this.zoom(s.x[i] - width / 2, s.x[i] + width / 2);
      this.tell();
    });
    return found;
  }
}

function copyable(text) {
  const code = document.createElement("code"), button = document.createElement("button");
  code.textContent = text;
  button.textContent = "copy filter";
  button.addEventListener("click", () => copy(button, text));
  return [code, " ", button];
}

function copy(button, text) {
  const done = () => { const was = button.textContent; button.textContent = "copied"; setTimeout(() => (button.textContent = was), 1200); };
  const fallback = () => {
    const area = document.createElement("textarea");
    area.value = text; document.body.append(area); area.select();
    try { document.execCommand("copy"); done(); } catch { /* the text is selectable */ }
    area.remove();
  };
  if (navigator.clipboard) navigator.clipboard.writeText(text).then(done, fallback); else fallback();
}
