const byId = id => document.getElementById(id);
const data = JSON.parse(byId("data").textContent);
const bytes = text => Uint8Array.from(atob(text), letter => letter.charCodeAt(0)).buffer;
const names = data.names, total = names.length;
const places = new Uint16Array(bytes(data.places));  // x and y of each label
const regionOf = new Uint8Array(bytes(data.regions));
const near = data.wide ? new Uint32Array(bytes(data.near)) : new Uint16Array(bytes(data.near));
const cosines = new Int8Array(bytes(data.cosines));
const documents = data.documents && new Uint32Array(bytes(data.documents));
const number = value => value.toLocaleString("en");
const several = (value, thing) => `${number(value)} ${thing}${value === 1 ? "" : "s"}`;
const keyOf = label => (data.keys && data.keys[label]) || names[label];
const countOf = label => documents ? number(documents[label]) : "";
const told = label => documents ? several(documents[label], "training document") : "";
const calm = matchMedia("(prefers-reduced-motion: reduce)");
const dark = matchMedia("(prefers-color-scheme: dark)");
const canvas = byId("map"), pen = canvas.getContext("2d"), stage = byId("stage");
const FIRST_LISTED = 20, SUGGESTIONS = 12, DEEPEST = 400;

// ---- layout: positions from 0 to 1, larger points for more training documents

const x = new Float32Array(total), y = new Float32Array(total), radius = new Float32Array(total);
const most = documents ? Math.max(1, documents[0]) : 1;
const larger = Math.min(2, Math.max(1, (20000 / Math.max(total, 1)) ** 0.2));
const radiusOf = count => larger * (1.3 + 3.4 * Math.log1p(count) / Math.log1p(most));
for (let i = 0; i < total; i++) {
  x[i] = places[2 * i] / 65535;
  y[i] = 1 - places[2 * i + 1] / 65535;
  radius[i] = documents ? radiusOf(documents[i]) : 2.2 * larger;
}
const labelsNear = label => {
  const found = [];
  for (let j = label * data.width; j < (label + 1) * data.width; j++)
    if (near[j] !== label) found.push([near[j], cosines[j] / 100]);
  return found;
};

// ---- the view: position of the centre, and pixels per unit

let wide = 1, high = 1, ratio = 1, view = {x: .5, y: .5, scale: 1}, whole = view, touched = false;
let chosen = -1, hovered = -1, only = -1, drawing = false, flight = 0, settling = 0;
let toolBox = [0, 0, 0, 0], colours = [], back = [], ink = "", paper = "", link = "";
const textWidths = new Map(), stamps = new Map();
const acrossOf = label => (x[label] - view.x) * view.scale + wide / 2;
const downOf = label => (y[label] - view.y) * view.scale + high / 2;
const zoomed = () => Math.min(3, Math.max(1, (view.scale / whole.scale) ** .3));
const grown = () => zoomed() * Math.max(.65, Math.min(1, wide / 800, high / 700));  // points are smaller on a small map

function around(labels) {
  let left = 1, right = 0, top = 1, bottom = 0;
  for (const i of labels) {
    left = Math.min(left, x[i]); right = Math.max(right, x[i]);
    top = Math.min(top, y[i]); bottom = Math.max(bottom, y[i]);
  }
  if (left > right) return {x: .5, y: .5, scale: Math.min(wide, high)};
  const across = Math.max(right - left, .002), down = Math.max(bottom - top, .002), margin = Math.min(48, wide / 10);
  const scale = Math.min((wide - 2 * margin) / across, (high - 2 * margin) / down);
  return {x: (left + right) / 2, y: (top + bottom) / 2, scale};
}
const all = function* () { for (let i = 0; i < total; i++) yield i; };
const bounded = scale => Math.min(whole.scale * DEEPEST, Math.max(whole.scale / 2, scale));

function look(next) {
  view = {x: Math.min(1.2, Math.max(-.2, next.x)), y: Math.min(1.2, Math.max(-.2, next.y)), scale: bounded(next.scale)};
  redraw();
  clearTimeout(settling);
  settling = setTimeout(listAnew, 150);
}
function zoom(factor, across = wide / 2, down = high / 2) {
  cancelAnimationFrame(flight);
  touched = true;
  const scale = bounded(view.scale * factor), shift = 1 / view.scale - 1 / scale;
  look({x: view.x + (across - wide / 2) * shift, y: view.y + (down - high / 2) * shift, scale});
}
function pan(across, down) {
  cancelAnimationFrame(flight);
  touched = true;
  look({x: view.x + across / view.scale, y: view.y + down / view.scale, scale: view.scale});
}
function fly(to) {
  cancelAnimationFrame(flight);
  touched = to !== whole;
  to = {...to, scale: bounded(to.scale)};
  if (calm.matches) return look(to);
  const from = view, start = performance.now(), same = Math.abs(Math.log(to.scale / from.scale)) < .01;
  const step = now => {
    const t = Math.min(1, (now - start) / 650), eased = t * t * (3 - 2 * t);
    const scale = from.scale * (to.scale / from.scale) ** eased;
    const part = same ? eased : (1 / from.scale - 1 / scale) / (1 / from.scale - 1 / to.scale);
    look({x: from.x + (to.x - from.x) * part, y: from.y + (to.y - from.y) * part, scale});
    if (t < 1) flight = requestAnimationFrame(step);
  };
  flight = requestAnimationFrame(step);
}
function closeUp(label) {  // zoom in until its neighbours can be told apart
  const squared = Float32Array.from(all(), i => (x[i] - x[label]) ** 2 + (y[i] - y[label]) ** 2).sort();
  const reach = Math.max(Math.sqrt(squared[Math.min(40, total - 1)]), .002);
  return {x: x[label], y: y[label], scale: Math.max(whole.scale, .4 * Math.min(wide, high) / reach)};
}

// ---- drawing

const parsed = colour => [1, 3, 5].map(at => parseInt(colour.slice(at, at + 2), 16));
const within = share => Math.min(1, Math.max(0, share));
function theme() {
  const style = getComputedStyle(document.documentElement), value = name => style.getPropertyValue(name).trim();
  colours = [...Array(8).keys()].map(region => parsed(value(`--region-${region}`)));
  [ink, paper, link] = [value("--ink"), value("--paper"), value("--link")];
  back = parsed(paper);
  redraw();
}
function stampOf(size) {  // coverage of each pixel by a point, and how much of that is fill rather than rim
  let found = stamps.get(size);
  if (!found) {
    const r = size / 2 * ratio, rim = size > 5 ? .75 * ratio : 0, middle = Math.ceil(r), side = 2 * middle + 1;
    const covered = new Float32Array(side * side), own = new Float32Array(side * side).fill(1);
    for (let at = 0; at < side * side; at++) {
      const away = Math.hypot(at % side - middle, Math.floor(at / side) - middle);
      covered[at] = within(r + .5 - away);
      if (rim && covered[at]) own[at] = within(r - rim + .5 - away) / covered[at];
    }
    stamps.set(size, found = {side, middle, covered, own});
  }
  return found;
}
function stamp(picture, label, size, strength) {  // much faster than drawing circles on the canvas
  const {side, middle, covered, own} = stampOf(size), colour = colours[regionOf[label]];
  const {data: pixels, width, height} = picture;
  const left = Math.round(acrossOf(label) * ratio) - middle, top = Math.round(downOf(label) * ratio) - middle;
  for (let row = Math.max(0, -top); row < Math.min(side, height - top); row++)
    for (let column = Math.max(0, -left); column < Math.min(side, width - left); column++) {
      const at = row * side + column, share = covered[at] * strength;
      if (!share) continue;
      const pixel = 4 * ((top + row) * width + left + column);
      for (let part = 0; part < 3; part++)
        pixels[pixel + part] += (back[part] + (colour[part] - back[part]) * own[at] - pixels[pixel + part]) * share;
    }
}
function redraw() {
  if (!drawing) { drawing = true; requestAnimationFrame(draw); }
}
function inView() {
  const found = [], margin = 4;
  const left = view.x - (wide / 2 - margin) / view.scale, right = view.x + (wide / 2 - margin) / view.scale;
  const top = view.y - (high / 2 - margin) / view.scale, bottom = view.y + (high / 2 - margin) / view.scale;
  for (let i = 0; i < total; i++)
    if (x[i] >= left && x[i] <= right && y[i] >= top && y[i] <= bottom) found.push(i);
  return found;
}
function uncovered(labels) {  // keeps the most frequent label in each block of 2 × 2 pixels
  const columns = Math.ceil(wide / 2) + 1, taken = new Uint8Array(columns * (Math.ceil(high / 2) + 1));
  return labels.filter(label => {
    const cell = (downOf(label) >> 1) * columns + (acrossOf(label) >> 1);
    return taken[cell] ? false : (taken[cell] = 1);
  });
}
function draw() {
  drawing = false;
  const picture = pen.createImageData(canvas.width, canvas.height), [red, green, blue] = back;
  new Uint32Array(picture.data.buffer).fill((255 << 24 | blue << 16 | green << 8 | red) >>> 0);
  const shown = inView(), growth = grown();
  for (const label of uncovered(shown).reverse())  // rare labels first, so that frequent ones are on top
    stamp(picture, label, Math.round(2 * radius[label] * growth), only < 0 || regionOf[label] === only ? .88 : .12);
  pen.putImageData(picture, 0, 0);
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  const marked = [chosen, hovered].filter(label => label >= 0);
  for (const label of marked) drawLinks(label);
  drawNames([...new Set([...marked, ...shown])], marked.length, growth);
  for (const label of marked) ring(label, growth, label === chosen);
}
function drawLinks(label) {
  pen.strokeStyle = link;
  pen.lineWidth = 1;
  pen.beginPath();
  for (const [other] of labelsNear(label)) {
    pen.moveTo(acrossOf(label), downOf(label));
    pen.lineTo(acrossOf(other), downOf(other));
  }
  pen.stroke();
}
function ring(label, growth, strong) {
  const circle = (radius, width, style) => {
    pen.beginPath();
    pen.arc(acrossOf(label), downOf(label), radius, 0, 7);
    pen.lineWidth = width; pen.strokeStyle = style;
    pen.stroke();
  };
  const reach = radius[label] * growth + 4;
  circle(reach, strong ? 6 : 4, paper);
  circle(reach, strong ? 3 : 1.5, ink);
}
function cut(text) {
  const letters = [...text];
  return letters.length > 30 ? letters.slice(0, 29).join("") + "…" : text;
}
function drawNames(labels, always, growth) {
  const room = Math.max(10, Math.round(wide * high / 8500)), taken = [toolBox];
  pen.textBaseline = "middle";
  pen.lineJoin = "round";
  for (let j = 0; j < labels.length && taken.length <= room && j < room * 20; j++) {
    const label = labels[j];
    if (j >= always && only >= 0 && regionOf[label] !== only) continue;
    const size = j < always + 10 ? 14 : 12;
    pen.font = `${j < always ? "600 " : ""}${size}px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif`;
    const text = cut(names[label]), key = `${pen.font}${label}`;
    if (!textWidths.has(key)) textWidths.set(key, pen.measureText(text).width);
    const width = textWidths.get(key), gap = radius[label] * growth + (j < always ? 9 : 4);
    const middle = downOf(label), starts = [acrossOf(label) + gap, acrossOf(label) - gap - width];
    for (const start of starts) {
      const box = [start - 3, middle - size / 2 - 2, start + width + 3, middle + size / 2 + 2];
      if (box[0] < 0 || box[2] > wide || box[1] < 0 || box[3] > high) continue;
      if (taken.some(each => box[0] < each[2] && box[2] > each[0] && box[1] < each[3] && box[3] > each[1])) continue;
      taken.push(box);
      pen.lineWidth = 3.5;
      pen.strokeStyle = paper;
      pen.strokeText(text, start, middle);
      pen.fillStyle = ink;
      pen.fillText(text, start, middle);
      break;
    }
  }
}
