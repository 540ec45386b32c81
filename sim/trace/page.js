"use strict";
// One message is {qp, op, size, index, psn, result, begin, end, events}; one event [kind, side, start, end, bytes, text, arrival, flags].
// One row of the chart is {time, after, from, to, qp, text, flags, note}. Only what is in sight is drawn.
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (name) => document.getElementById(name);
const escape = (text) => String(text).replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
const count = (n) => n.toLocaleString("en");
const COLORS = { doorbell: "doorbell", wqe: "wqe", mpt: "translation", mtt: "translation", read: "dma", write: "dma", packet: "packet", cqe: "cqe" };
const NAMES = { doorbell: "doorbell", wqe: "WQE fetch", mpt: "translation: MPT", mtt: "translation: MTT", read: "DMA read", write: "DMA write", packet: "packet", cqe: "CQE" };
const LANES = ["cqe", "doorbell", "wqe", "translation", "dma", "packet"];
const LANE_NAMES = { cqe: "CQE", doorbell: "doorbell", wqe: "WQE fetch", translation: "translation", dma: "DMA", packet: "packets" };
const BAD = ["lost", "corrupted", "damaged", "nak"];
const NARROW = 236, LANE = 17, WIRE = 26, CLOSED = 40, ARROW = 30;
const state = { view: data.messages.length ? "timeline" : "chart", qp: "", from: 0, to: 1, open: new Set(), chosen: null, follow: true };

const isBad = (flags) => flags.some((flag) => BAD.includes(flag));
const failed = (event) => event[0] === "cqe" && event[5] && event[5] !== "SUCCESS";
const color = (event) => (failed(event) ? "bad" : event[0] !== "packet" ? COLORS[event[0]] : isBad(event[7]) ? "bad" : event[7].includes("again") ? "again" : event[1] ? "answer" : "packet");
const lane = (event) => COLORS[event[0]];
let messages = [], chart = [], tops = [], left = NARROW, places = { since: 130, from: 210, to: 0 };

// How wide a text is drawn, of so many pixels.
const pen = document.createElement("canvas").getContext("2d");
function widthOf(text, size, weight = 400) {
  pen.font = `${weight} ${size}px ${getComputedStyle(document.body).fontFamily}`;
  return pen.measureText(text).width;
}
const widest = (texts, size) => [...new Set(texts)].reduce((most, text) => Math.max(most, widthOf(text, size)), 0);
const wrong = (message) => message.result && message.result !== "SUCCESS";
const outcome = (message) => (wrong(message) ? message.result : `${count(message.end - message.begin + 1)} cycles`);
const what = (message) => `${message.op} ${count(message.size)} B`;
const which = (message) => `${message.qp} · WQE ${message.index}`;
const remarks = (row) => [row.flags.filter((flag) => flag !== "nak").join(", "), row.note].filter(Boolean).join("; ");

function lanesOf(message) {
  if (!message.lanes) {
    const has = [0, 1].map((side) => new Set(message.events.filter((e) => e[1] === side).map(lane)));
    if (message.events.some((e) => e[0] === "packet")) has.forEach((set) => set.add("packet"));
    message.lanes = [LANES.filter((name) => has[0].has(name)), [...LANES].reverse().filter((name) => has[1].has(name))];
  }
  return message.lanes;
}
function height(message) {
  if (!state.open.has(message)) return CLOSED;
  const [here, there] = lanesOf(message);
  return (here.length + there.length) * LANE + WIRE + 48;
}
function choose() {
  messages = data.messages.filter((m) => !state.qp || m.qp === state.qp);
  chart = data.chart.filter((row) => !state.qp || row.qp === state.qp);
  measure();
}
// Room for the longest labels; on a narrow page they are cut off, and the tip has them whole.
function place() {
  const lines = [...messages.map((m) => what(m) + outcome(m) + "MMM"), ...messages.map((m) => which(m) + "M")];
  left = Math.min(Math.max(NARROW, Math.ceil(widest(lines, 12)) + 12), Math.max(NARROW, Math.floor(wide() * 0.45)));
  const hosts = [...new Set(chart.flatMap((row) => [row.from, row.to]))].sort((a, b) => a - b).map((i) => data.hosts[i]);
  const half = (host) => (host ? widthOf(host, 12) / 2 : 0);
  const times = widest([data.unit, ...chart.map((row) => row.time)], 11);
  const since = 12 + times + 16 + widest(["since above", ...chart.map((row) => row.after)], 11);
  const from = since + 16 + Math.max(12, half(hosts[0]));
  const notes = widest(chart.map(remarks), 12) + 30;
  places = { since, from, to: Math.max(from + 220, Math.min(wide() - 30 - half(hosts[hosts.length - 1]), wide() - notes)) };
}
function measure() {
  place();
  tops = [0];
  for (const message of messages) tops.push(tops[tops.length - 1] + height(message));
  byId("space").style.height = (state.view === "timeline" ? tops[tops.length - 1] : chart.length * ARROW + 60) + "px";
}
function inSight() {
  const top = byId("scroll").scrollTop, bottom = top + byId("scroll").clientHeight;
  return messages.filter((_, i) => tops[i + 1] > top && tops[i] < bottom);
}
function fit(shown) {
  if (!shown.length) return;
  const begin = shown.reduce((least, m) => Math.min(least, m.begin, m.events[0][2]), Infinity), end = shown.reduce((most, m) => Math.max(most, m.end), 0);
  const margin = Math.max(4, (end - begin) * 0.02);
  [state.from, state.to] = [begin - margin, end + margin];
}
const wide = () => Math.max(200, byId("scroll").clientWidth);
const x = (cycle) => left + ((cycle - state.from) / (state.to - state.from)) * (wide() - left - 16);

function drawAxis() {
  const step = [1, 2, 5].flatMap((n) => Array.from({ length: 12 }, (_, p) => n * 10 ** p)).sort((a, b) => a - b).find((s) => ((wide() - left) * s) / (state.to - state.from) > 90);
  let out = `<text x="12" y="17" class="faint">cycles since the first doorbell</text>`;
  for (let at = Math.ceil((state.from - data.zero) / step) * step; at <= state.to - data.zero; at += step) {
    const place = x(at + data.zero);
    if (place >= left) out += `<text x="${place}" y="17" class="faint" text-anchor="middle">${count(at || 0)}</text>`;
  }
  byId("axis").innerHTML = `<svg width="${wide()}" height="26">${out}</svg>`;
  return step;
}
function bar(event, y, tall, tip) {
  const begin = Math.max(left, x(event[2])), right = Math.min(wide(), Math.max(x(event[3] + 1), x(event[2]) + 2));
  if (right < left || begin > wide()) return "";
  return `<rect x="${begin}" y="${y}" width="${Math.max(0, right - begin)}" height="${tall}" rx="2" fill="var(--${color(event)})" stroke="var(--paper)" stroke-width="0.6" opacity="0.9" data-tip="${escape(tip)}"/>`;
}
function tipOf(event) {
  const size = event[4] ? `, ${count(event[4])} bytes` : "";
  const travel = event[6] === null ? "" : `\narrived after ${count(event[6] - event[3])} cycles`;
  const flags = event[7].filter((f) => f !== "nak");
  return `${NAMES[event[0]]}${size}, ${event[1] ? "responder" : "requester"}\ncycles ${count(event[2] - data.zero)} to ${count(event[3] - data.zero)}: ${count(event[3] - event[2] + 1)}${event[5] ? "\n" + event[5] : ""}${travel}${flags.length ? "\n" + flags.join(", ") : ""}`;
}
// A packet from its sender's lane to its receiver's; one that did not arrive ends on the wire.
function flight(event, y0, y1) {
  const near = event[1] ? y1 : y0, whole = event[1] ? y0 : y1, lost = event[7].includes("lost");
  const far = lost ? (near + whole) / 2 : whole, shift = event[6] === null ? 0 : event[6] - event[3];
  const a = x(event[2]), b = Math.max(x(event[3] + 1), a + 1.5), c = x(event[3] + 1 + shift), d = x(event[2] + shift);
  if (b < left || a > wide()) return "";
  const cross = lost ? `<text x="${(a + b) / 2}" y="${far + 4}" text-anchor="middle" class="bad">✕</text>` : "";
  return `<polygon points="${a},${near} ${b},${near} ${Math.max(c, d + 1.5)},${far} ${d},${far}" fill="var(--${color(event)})" opacity="0.45" data-tip="${escape(tipOf(event))}"/>${cross}`;
}
function drawMessage(message, top) {
  const open = state.open.has(message), chosen = state.chosen === message;
  const [here, there] = lanesOf(message);
  const number = data.messages.indexOf(message);
  let out = `<rect x="0" y="${top}" width="${wide()}" height="${height(message)}" fill="var(--${chosen ? "mark" : number % 2 ? "paper" : "band"})"/>`;
  const tip = `data-tip="${escape(`${what(message)}\n${which(message)}\n${outcome(message)}`)}"`;
  out += `<g clip-path="url(#label)" ${tip}><text x="12" y="${top + 17}" ${tip}>${escape(message.op)} <tspan class="faint" ${tip}>${count(message.size)} B</tspan></text>`;
  out += `<text x="12" y="${top + 32}" class="faint" ${tip}>${escape(which(message))}</text></g>`;
  out += `<text x="${left - 10}" y="${top + 17}" text-anchor="end" class="${wrong(message) ? "bad" : "faint"}">${escape(outcome(message))}</text>`;
  if (!open) {
    for (const event of message.events) out += event[0] === "packet" ? flight(event, top + 16, top + 25) : bar(event, top + (event[1] ? 26 : 6), 9, tipOf(event));
    return out;
  }
  const y = [{}, {}];
  let at = top + 36;
  here.forEach((name, i) => (y[0][name] = at + i * LANE));
  at += here.length * LANE + WIRE;
  there.forEach((name, i) => (y[1][name] = at + i * LANE));
  [here, there].forEach((names, side) => names.forEach((name) => {
    const faint = `<line x1="${left}" x2="${wide()}" y1="${y[side][name] + 15}" y2="${y[side][name] + 15}" stroke="var(--line)" stroke-width="0.5"/>`;
    out += faint + `<text x="${left - 10}" y="${y[side][name] + 12}" text-anchor="end" class="faint">${LANE_NAMES[name]}</text>`;
  }));
  out += `<text x="12" y="${y[0][here[0]] + 13}" class="side">requester ${escape(message.ends[0])}</text>`;
  if (there.length) out += `<text x="12" y="${y[1][there[0]] + 13}" class="side">responder ${escape(message.ends[1])}</text>`;
  const low = (y[0].packet ?? at) + 14, high = y[1].packet ?? at;
  for (const event of message.events) {
    out += bar(event, y[event[1]][lane(event)] + 2, 12, tipOf(event));
    if (event[0] !== "packet") continue;
    out += flight(event, low, high);
    if (event[6] !== null) out += bar([...event.slice(0, 2), event[2] + event[6] - event[3], event[6], ...event.slice(4)], y[1 - event[1]].packet + 2, 12, tipOf(event));
  }
  return out;
}
function drawTimeline() {
  const step = drawAxis(), top = byId("scroll").scrollTop, tall = byId("scroll").clientHeight;
  let grid = "", out = "", first = tops.findIndex((t) => t > top) - 1, end = Math.max(0, first);
  for (let at = Math.ceil((state.from - data.zero) / step) * step; at <= state.to - data.zero; at += step) {
    const place = x(at + data.zero);
    if (place >= left) grid += `<line x1="${place}" x2="${place}" y1="0" y2="${tall}" stroke="var(--line)"/>`;
  }
  for (; end < messages.length && tops[end] < top + tall; end++)
    out += `<g class="row" data-message="${end}">${drawMessage(messages[end], tops[end] - top)}</g>`;
  const label = `<clipPath id="label"><rect width="${left - 6}" height="${tall}"/></clipPath>`;
  byId("rows").innerHTML = `<svg width="${wide()}" height="${tall}">${label}${out}<g pointer-events="none" opacity="0.6">${grid}</g></svg>`;
}
function drawChart() {
  const top = byId("scroll").scrollTop, tall = byId("scroll").clientHeight, hosts = data.hosts;
  const used = [...new Set(chart.flatMap((row) => [row.from, row.to]))].sort((a, b) => a - b);
  const { since, from, to } = places;
  const spread = new Map(used.map((host, i) => [host, used.length > 1 ? from + ((to - from) * i) / (used.length - 1) : (from + to) / 2]));
  const heads = `<text x="12" y="17" class="faint">${data.unit}</text><text x="${since}" y="17" class="faint" text-anchor="end">since above</text>`;
  byId("axis").innerHTML = `<svg width="${wide()}" height="26">${heads}` + used.map((host) => `<text x="${spread.get(host)}" y="17" text-anchor="middle">${escape(hosts[host])}</text>`).join("") + "</svg>";
  let out = used.map((host) => `<line x1="${spread.get(host)}" x2="${spread.get(host)}" y1="0" y2="${tall}" stroke="var(--line)" stroke-width="2"/>`).join("");
  for (let i = Math.max(0, Math.floor(top / ARROW) - 1); i < chart.length && i * ARROW < top + tall; i++) {
    const row = chart[i], y = i * ARROW - top + 20, a = spread.get(row.from), b = spread.get(row.to);
    const lost = row.flags.includes("lost"), bad = isBad(row.flags), again = row.flags.includes("again");
    const stroke = `var(--${bad ? "bad" : again ? "again" : row.answer ? "answer" : "packet"})`, sign = Math.sign(b - a) || 1;
    const tip = lost ? a + (b - a) * 0.62 : b - 2 * sign, slope = lost ? 3 : 5;
    out += `<g class="arrow"><text x="12" y="${y + 3}" class="faint">${escape(row.time)}</text><text x="${since}" y="${y + 3}" class="faint" text-anchor="end">${escape(row.after)}</text>`;
    out += `<line x1="${a}" y1="${y}" x2="${tip}" y2="${y + slope}" stroke="${stroke}" stroke-width="1.6" ${again ? 'stroke-dasharray="6 3"' : ""}/>`;
    out += lost || row.flags.includes("corrupted") || row.flags.includes("damaged")
      ? `<text x="${tip}" y="${y + slope + 5}" text-anchor="middle" class="bad" font-weight="700">✕</text>`
      : `<polygon points="${tip},${y + slope} ${tip - 9 * sign},${y + slope - 5} ${tip - 9 * sign},${y + slope + 4}" fill="${stroke}"/>`;
    out += `<text x="${(a + b) / 2}" y="${y - 4}" text-anchor="middle" class="${bad ? "bad" : again ? "again" : ""}">${escape(row.text)} <tspan class="faint">${escape(row.more)}</tspan></text>`;
    if (remarks(row)) out += `<text x="${wide() - 14}" y="${y + 3}" text-anchor="end" class="${bad ? "bad" : again ? "again" : "faint"}">${escape(remarks(row))}</text>`;
    out += "</g>";
  }
  byId("rows").innerHTML = `<svg width="${wide()}" height="${tall}">${out}</svg>`;
}
function drawDetail() {
  const message = state.chosen, show = state.view === "timeline" && message;
  byId("detail").style.display = show ? "" : "none";
  if (!show) return;
  const rows = message.events.map((event) => {
    const flags = event[7].filter((f) => f !== "nak");
    const told = (event[0] === "packet" ? event[5] : NAMES[event[0]] + (event[5] && event[5] !== "SUCCESS" ? ": " + event[5] : "")) + (flags.length ? ` (${flags.join(", ")})` : "");
    const name = escape(told).replaceAll("_", "_<wbr>");
    return `<tr><td class="n">${count(event[2] - message.begin)}</td><td class="n">${count(event[3] - event[2] + 1)}</td><td>${event[1] ? "resp." : "req."}</td><td class="${isBad(event[7]) || failed(event) ? "bad" : ""}"><i style="background:var(--${color(event)})"></i>${name}</td><td class="n">${count(event[4])}</td></tr>`;
  });
  byId("detail").innerHTML = `<h2>${escape(message.op)}, ${count(message.size)} bytes</h2><p>${escape(message.qp)}, WQE ${message.index}, PSN ${message.psn}<br>${count(message.end - message.begin + 1)} cycles, ${(((message.end - message.begin + 1) / data.clock) * 1e6).toFixed(3)} µs at the nominal clock; <span class="${wrong(message) ? "bad" : ""}">${message.result || "no completion"}</span></p><table><tr><th class="n">at<br>cycle</th><th class="n">took<br>cycles</th><th></th><th>what</th><th class="n">bytes</th></tr>${rows.join("")}</table>`;
}
function draw() {
  byId("rows").style.top = byId("scroll").scrollTop + "px";
  for (const name of ["timeline", "chart"]) {
    byId("tab-" + name).classList.toggle("on", state.view === name);
    document.querySelectorAll("nav ." + name).forEach((part) => (part.style.display = state.view === name ? "" : "none"));
  }
  drawDetail();
  if (state.follow) fit(inSight());
  if (state.view === "timeline") drawTimeline();
  else drawChart();
}
function follow(on) { state.follow = byId("follow").checked = on; }
function zoom(factor, middle) {
  follow(false);
  middle ??= (state.from + state.to) / 2;
  const span = Math.max(8, (state.to - state.from) * factor);
  state.from = middle - ((middle - state.from) / (state.to - state.from)) * span;
  state.to = state.from + span;
  draw();
}
const cycleAt = (place) => state.from + ((place - byId("scroll").getBoundingClientRect().left - left) / (wide() - left - 16)) * (state.to - state.from);

function show(view) { state.view = view; byId("scroll").scrollTop = 0; measure(); draw(); }
byId("tab-timeline").onclick = () => show("timeline");
byId("tab-chart").onclick = () => show("chart");
byId("in").onclick = () => zoom(0.5);
byId("out").onclick = () => zoom(2);
byId("fit").onclick = () => { follow(false); fit(messages); draw(); };
byId("follow").onchange = (event) => { follow(event.target.checked); draw(); };
byId("expand").onchange = (event) => { state.open = new Set(event.target.checked ? data.messages : []); measure(); draw(); };
byId("filter").onchange = (event) => { state.qp = event.target.value; byId("scroll").scrollTop = 0; choose(); draw(); };
byId("scroll").onscroll = () => draw();
window.onresize = () => { measure(); draw(); };
byId("scroll").addEventListener("wheel", (event) => {
  if (state.view !== "timeline" || !(event.ctrlKey || event.altKey || event.metaKey)) return;
  event.preventDefault();
  zoom(event.deltaY < 0 ? 0.8 : 1.25, cycleAt(event.clientX));
}, { passive: false });
let drag = null;
byId("rows").onmousedown = (event) => (drag = { x: event.clientX, from: state.from, to: state.to, moved: false });
window.onmouseup = (event) => {
  const moved = drag?.moved;
  drag = null;
  const row = !moved && event.target.closest?.(".row");
  if (!row || state.view !== "timeline") return;
  const message = messages[row.dataset.message];
  if (state.chosen === message && state.open.has(message)) state.open.delete(message);
  else state.open.add(message);
  state.chosen = message;
  measure();
  draw();
};
window.onmousemove = (event) => {
  if (drag && state.view === "timeline" && Math.abs(event.clientX - drag.x) > 3) {
    drag.moved = true;
    follow(false);
    const by = ((drag.x - event.clientX) / (wide() - left - 16)) * (drag.to - drag.from);
    [state.from, state.to] = [drag.from + by, drag.to + by];
    draw();
  }
  const tip = event.target.dataset?.tip, box = byId("tip");
  box.style.display = tip ? "block" : "none";
  if (tip) { box.textContent = tip; box.style.left = Math.min(event.clientX + 14, innerWidth - 300) + "px"; box.style.top = Math.min(event.clientY + 16, innerHeight - 110) + "px"; }
};

byId("summary").textContent = data.summary;
byId("filter").innerHTML = `<option value="">all</option>` + data.qps.map((qp) => `<option>${escape(qp)}</option>`).join("");
byId("legend").innerHTML = [["doorbell", "doorbell"], ["wqe", "WQE fetch"], ["translation", "translation"], ["dma", "DMA"], ["packet", "request"], ["answer", "response"], ["cqe", "CQE"], ["again", "sent again"], ["bad", "lost, NAK, error"]].map(([c, name]) => `<span><i style="background:var(--${c})"></i>${name}</span>`).join(" ");
byId("marks").innerHTML = [["packet", "request"], ["answer", "response"], ["again", "sent again"], ["bad", "lost, NAK"]].map(([c, name]) => `<span><i style="background:var(--${c})"></i>${name}</span>`).join(" ");
byId("tab-timeline").style.display = data.messages.length ? "" : "none";
if (location.hash === "#chart") state.view = "chart";
choose();
if (messages.length && messages.length <= 6) { messages.forEach((m) => state.open.add(m)); byId("expand").checked = true; }
state.chosen = messages[0] ?? null;
measure();
draw();
document.body.dataset.ready = `${data.messages.length} messages, ${data.chart.length} packets`;
