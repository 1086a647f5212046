// A chart that is drawn into its place once, and from then on changes in it: what stays the same is not drawn anew.
const drawn = new WeakMap(); // by the element of Streamlit's that holds a chart
const AXIS = /^[xy]axis\d*$/;

// Whoever draws first has the library read; the frame of the page may have begun to before there was a chart.
const library = (address) => {
  window.shardscapePlotly ??= {};
  window.shardscapePlotly[address] ??= new Promise((ready, failed) => {
    const begun = [...document.scripts].find(({src}) => src === address);
    const script = begun ?? document.createElement("script");
    if (script.dataset.read) return ready(window.Plotly);
    script.addEventListener("load", () => ready(window.Plotly));
    script.addEventListener("error", () => {
      delete window.shardscapePlotly[address];
      script.remove();
      failed(new Error(`${address} could not be loaded`));
    });
    if (begun) return;
    script.src = address;
    document.head.append(script);
  });
  return window.shardscapePlotly[address];
};

// What is there without the library is seen first. A window that is not seen paints nothing.
const painted = () => new Promise((done) => {
  requestAnimationFrame(() => setTimeout(done));
  setTimeout(done, 200);
});

// Sides of the colour bars that there are: what else is drawn does not matter to them.
const bars = ({data}) => JSON.stringify(data.map(({marker, colorbar = marker?.colorbar}) => colorbar)
  .filter(Boolean).map(({orientation}) => orientation ?? "v"));

// Frames around what was clicked, moved there before the server has answered.
const marked = (shapes, {data, pointNumber, xaxis, yaxis}) => {
  const [x, y, base] = ["x", "y", "base"].map((name) => data[name]?.[pointNumber]);
  const at = {x, y: base === undefined ? y : base + y / 2}; // of a bar the middle
  return shapes.map((shape) => {
    if (shape.name !== "clicked") return shape;
    const [wide, high] = [(shape.x1 - shape.x0) / 2, (shape.y1 - shape.y0) / 2];
    return {...shape, x0: at.x - wide, x1: at.x + wide, y0: at.y - high, y1: at.y + high,
      xref: xaxis._id, yref: yaxis._id};
  });
};

// What a box over the plot, or a brush of parallel coordinates, keeps: [from, to] by what it is about, null for all.
const boxed = ({x, y}, {x: across, y: up}) =>
  ({...(across && x && {[across]: x.map(Number)}), ...(up && y && {[up]: y.map(Number)})});
const brushed = ({data}, [changes, [trace] = [0]]) => Object.fromEntries(Object.keys(changes)
  .map((path) => data[trace]?.dimensions?.[/^dimensions\[(\d+)\]\.constraintrange$/.exec(path)?.[1]])
  .filter(Boolean).map(({name, constraintrange: kept}) => [name, kept?.length ? kept.flat() : null]));

const plain = (value) => (ArrayBuffer.isView(value) ? Array.from(value) : value);

// The page's font as text: an image that is made of a drawing reads no file beside it.
const face = async (family) => {
  const wanted = family.split(",")[0].replace(/["']/g, "").trim();
  const rules = [...document.styleSheets].flatMap((sheet) => {
    try { return [...sheet.cssRules]; } catch { return []; } // of another origin
  });
  const found = rules.find((rule) => rule instanceof CSSFontFaceRule
    && rule.style.getPropertyValue("font-family").replace(/["']/g, "") === wanted);
  const address = found?.style.getPropertyValue("src").match(/url\("?([^")]+)"?\)/)?.[1];
  if (!address) return "";
  const file = await (await fetch(new URL(address, found.parentStyleSheet.href ?? document.baseURI))).blob();
  const text = await new Promise((done) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result);
    reader.readAsDataURL(file);
  });
  return `<style>@font-face{font-family:"${wanted}";font-weight:100 900;src:url(${text})}</style>`;
};

const ground = (element) => {
  for (let each = element; each; each = each.parentElement) {
    const colour = getComputedStyle(each).backgroundColor;
    if (!/^(transparent|rgba\(.*, 0\))$/.test(colour)) return colour;
  }
  return "white";
};

// Plotly's own picture has no ground and another font, whose wider letters its margins cut off.
async function save(Plotly, {place, config}) {
  const {filename, scale} = config.toImageButtonOptions;
  const {_fullLayout: {width, height}, data, layout} = place;
  const drawing = await Plotly.toImage({data, layout, config}, {format: "svg", width, height});
  const font = await face(getComputedStyle(place).fontFamily).catch(() => "");
  const text = decodeURIComponent(drawing.slice(drawing.indexOf(",") + 1)).replace(/<svg[^>]*>/, `$&${font}`);
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = Object.assign(document.createElement("canvas"), {width: width * scale, height: height * scale});
  const pen = canvas.getContext("2d");
  pen.fillStyle = ground(place);
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.drawImage(image, 0, 0, canvas.width, canvas.height);
  const link = Object.assign(document.createElement("a"), {download: `${filename}.png`, href: canvas.toDataURL()});
  link.click();
}

// Marks that can be clicked, by where their middle is in the chart [px].
const marks = ({_fullLayout, calcdata}) => calcdata.flatMap((points) => {
  const {trace: {xaxis = "x", yaxis = "y", customdata, index} = {}} = points[0] ?? {};
  const [across, up] = [xaxis, yaxis].map((name) => _fullLayout[name.replace(/^[xy]/, "$&axis")]);
  if (!customdata || !across || !up) return [];
  return points.map(({ct, x, y, i}, place) => {
    const pointNumber = i ?? place;
    const [left, top] = ct ?? [across.c2p(x), up.c2p(y)];
    const told = customdata[pointNumber];
    if (told === undefined || told === null || !Number.isFinite(left + top)) return null;
    return {curveNumber: index, pointNumber, left: left + across._offset, top: top + up._offset, told};
  }).filter(Boolean);
});

const around = ({data, _fullLayout}, {curveNumber}) => {
  const {xaxis = "x", yaxis = "y"} = data[curveNumber];
  const axis = (name) => _fullLayout[name.replace(/^[xy]/, "$&axis")];
  return {data: data[curveNumber], xaxis: axis(xaxis), yaxis: axis(yaxis)};
};

const STEPS = {ArrowRight: ["left", 1], ArrowLeft: ["left", -1], ArrowDown: ["top", 1], ArrowUp: ["top", -1]};

// The next mark in a direction: the nearest, where a detour sideways counts double.
const beside = (all, now, key) => {
  const [along, sign] = STEPS[key], sideways = along === "left" ? "top" : "left";
  const far = (each) => sign * (each[along] - now[along]);
  const cost = (each) => far(each) + 2 * Math.abs(each[sideways] - now[sideways]);
  return all.filter((each) => far(each) > 1).sort((one, other) => cost(one) - cost(other))[0] ?? now;
};

// Where the keyboard is in a chart: at the frame of what is selected at first.
const first = (all, {layout: {shapes = []}, _fullLayout: {xaxis, yaxis}}) => {
  const frame = shapes.find(({name}) => name === "clicked");
  if (!frame || !xaxis || !yaxis) return all[0];
  const [left, top] = [xaxis._offset + xaxis.d2p((frame.x0 + frame.x1) / 2), yaxis._offset + yaxis.d2p((frame.y0 + frame.y1) / 2)];
  const far = (each) => Math.hypot(each.left - left, each.top - top) || 0;
  return all.toSorted((one, other) => far(one) - far(other))[0];
};

// Whoever has no pointer goes from mark to mark by arrows, hears what each says, and selects by Enter or the space bar.
function walk(own, event) {
  const {Plotly, place} = own;
  if (!own.clickable || !Plotly || event.target !== place || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape") return leave(own);
  const selects = event.key === "Enter" || event.key === " ";
  if (!selects && !(event.key in STEPS)) return;
  const all = marks(place);
  if (!all.length) return;
  event.preventDefault();
  const known = all.find(({curveNumber, pointNumber}) =>
    curveNumber === own.at?.curveNumber && pointNumber === own.at?.pointNumber);
  if (selects && known) {
    const {data, xaxis, yaxis} = around(place, known);
    return select(Plotly, own, known.told, {data, pointNumber: known.pointNumber, xaxis, yaxis});
  }
  own.at = known ? beside(all, known, event.key) : first(all, place);
  Plotly.Fx.hover(place, [own.at]);
  own.cursor ??= Object.assign(document.createElement("div"), {className: "ss-cursor"});
  Object.assign(own.cursor.style, {left: `${own.at.left}px`, top: `${own.at.top}px`});
  place.append(own.cursor);
  own.heard.textContent = [...place.querySelectorAll(".hoverlayer .hovertext")]
    .map((each) => [...each.querySelectorAll("text, tspan.line")].filter(({childElementCount}) => !childElementCount)
      .map(({textContent}) => textContent).join(", ")).join("; ");
}

function leave(own) {
  if (own.at && own.Plotly) own.Plotly.Fx.unhover(own.place);
  own.cursor?.remove();
  own.at = null;
}

// Labels of an axis that has no room for them all run into each other.
const LABEL = 58; // room of a label such as "1,000 GiB" [px]
async function thin(Plotly, place) {
  const change = {};
  for (const [name, axis] of Object.entries(place._fullLayout)) {
    if (!/^xaxis\d*$/.test(name) || axis.type !== "linear" || axis.tickmode === "array") continue;
    const most = Math.max(2, Math.floor(axis._length / LABEL));
    if ((axis._vals?.length ?? 0) > most + 1) Object.assign(change, {[`${name}.nticks`]: most, [`${name}.dtick`]: null});
  }
  if (Object.keys(change).length) await Plotly.relayout(place, change);
}

async function step(Plotly, own) {
  const width = own.place.clientWidth;
  const family = getComputedStyle(own.place).fontFamily;
  if (!width || (own.shown === own.figure && own.width === width && own.family === family)) return;
  [own.shown, own.width, own.family] = [own.figure, width, family];
  const figure = JSON.parse(own.figure);
  const {shapes = [], ...unframed} = figure.layout;
  const rest = JSON.stringify([figure.data, unframed, width, family]);
  if (own.listens && own.rest === rest) return Plotly.relayout(own.place, {shapes}); // nothing else is drawn anew
  own.rest = rest;
  if (own.listens) Plotly.Fx.unhover(own.place); // what hovers is of the former figure
  const layout = {hovermode: "closest", ...figure.layout, width, clickmode: "event"};
  layout.font = {family, ...layout.font};
  // Somebody's zoom stays while the axes are the same.
  layout.uirevision ??= JSON.stringify(Object.entries(layout).filter(([name]) => AXIS.test(name))
    .map(([name, axis]) => [name, axis.range, axis.title?.text, axis.type]));
  if (!own.listens) own.place.textContent = "";
  if (own.listens) {
    // Plotly (4.1) keeps the room that labels of the former figure took, and measures the title of a colour bar that
    // changes sides as it stood.
    own.place._fullLayout._pushmargin = {};
    if (own.bars !== bars(figure)) {
      Plotly.purge(own.place);
      own.listens = false;
    }
  }
  own.bars = bars(figure);
  // The same ones every time: a chart whose buttons are others is made anew.
  own.buttons ??= [[{name: "toImage", title: "Download as PNG", icon: Plotly.Icons.camera,
    click: () => save(Plotly, own).catch(console.warn)}]];
  await Plotly.react(own.place, figure.data, layout, {...own.config, modeBarButtons: own.buttons});
  await thin(Plotly, own.place);
  if (own.at) leave(own); // its marks are where others were
  if (own.listens) return;
  own.listens = true;
  listenToBrushes(Plotly, own);
  own.place.on("plotly_click", ({points}) => {
    const point = points.find(({customdata}) => customdata !== undefined && customdata !== null);
    if (!own.clickable || !point) return;
    select(Plotly, own, point.customdata, point);
  });
}

function select(Plotly, own, told, point) {
  own.send("clicked", [plain(told)].flat());
  const shapes = own.place.layout.shapes ?? [];
  if (!shapes.some(({name}) => name === "clicked")) return;
  own.shown = ""; // the server's own frames replace these
  Plotly.relayout(own.place, {shapes: marked(shapes, point)});
}

// A box, once drawn, is the server's to show.
function listenToBrushes(Plotly, own) {
  own.place.on("plotly_selected", (box) => {
    if (!own.brushes || !box?.range) return;
    own.send("brushed", boxed(box.range, own.brushes));
    Plotly.relayout(own.place, {selections: []});
  });
  own.place.on("plotly_restyle", (change) => {
    const kept = brushed(own.place, change);
    if (own.brushes && Object.keys(kept).length) own.send("brushed", kept);
  });
}

async function redraw(own) {
  own.waits = true;
  if (own.busy) return;
  own.busy = true;
  try {
    const Plotly = own.Plotly ?? await library(own.library);
    if (!own.Plotly && document.querySelector(".ss-still")) await painted();
    own.Plotly ??= Plotly;
    while (own.waits && !own.gone) {
      own.waits = false;
      await step(Plotly, own);
    }
    if (own.gone) Plotly.purge(own.place);
  } finally {
    own.busy = false;
  }
}

export default function ({data, parentElement, setTriggerValue}) {
  let own = drawn.get(parentElement);
  if (!own) {
    own = {place: document.createElement("div")};
    own.place.className = "ss-chart";
    own.place.setAttribute("role", "figure");
    parentElement.append(own.place);
    own.place.addEventListener("keydown", (event) => walk(own, event));
    own.place.addEventListener("blur", () => leave(own));
    own.draw = () => redraw(own).catch((error) => {
      console.warn(error);
      if (!own.listens) own.place.textContent = own.place.ariaLabel; // what it shows, in words
    });
    own.observer = new ResizeObserver(own.draw);
    own.observer.observe(own.place);
    drawn.set(parentElement, own);
  }
  own.place.setAttribute("aria-label", data.alt);
  if (data.clickable && !own.heard) {
    own.heard = Object.assign(document.createElement("div"), {className: "ss-heard", role: "status"});
    own.place.after(own.heard);
    own.place.tabIndex = 0;
    own.place.setAttribute("aria-description", "Arrow keys go from mark to mark, Enter selects one.");
  }
  own.place.style.minHeight = `${data.height}px`;
  const script = document.querySelector(data.script);
  own.library = new URL(data.library, script ? script.src : document.baseURI).href;
  [own.figure, own.config, own.clickable, own.send] = [data.figure, data.config, data.clickable, setTriggerValue];
  own.brushes = data.brushes;
  own.draw();
  return () => {
    own.gone = true;
    own.observer.disconnect();
    drawn.delete(parentElement);
    own.Plotly?.purge(own.place);
    own.place.remove();
    own.heard?.remove();
  };
}
