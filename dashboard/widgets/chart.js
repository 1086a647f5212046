// A chart that is drawn into its place once, and from then on changes in it: what stays the same is not drawn anew.
const drawn = new WeakMap(); // by the element of Streamlit's that holds a chart
const AXIS = /^[xy]axis\d*$/;

const library = (address) => {
  window.shardscapePlotly ??= new Promise((ready, failed) => {
    const script = document.createElement("script");
    script.src = address;
    script.onload = () => ready(window.Plotly);
    script.onerror = () => {
      delete window.shardscapePlotly;
      script.remove();
      failed(new Error(`${address} could not be loaded`));
    };
    document.head.append(script);
  });
  return window.shardscapePlotly;
};

// Sides of the colour bars that there are: what else is drawn does not matter to them.
const bars = ({data}) => JSON.stringify(data.map(({marker, colorbar = marker?.colorbar}) => colorbar)
  .filter(Boolean).map(({orientation}) => orientation ?? "v"));

const plain = (value) => (ArrayBuffer.isView(value) ? Array.from(value) : value);

async function step(Plotly, own) {
  const width = own.place.clientWidth;
  const family = getComputedStyle(own.place).fontFamily;
  if (!width || (own.shown === own.figure && own.width === width && own.family === family)) return;
  if (own.listens && own.shown !== own.figure) Plotly.Fx.unhover(own.place); // what hovers is of the former figure
  [own.shown, own.width, own.family] = [own.figure, width, family];
  const figure = JSON.parse(own.figure);
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
  await Plotly.react(own.place, figure.data, layout, own.config);
  if (own.listens) return;
  own.listens = true;
  own.place.on("plotly_click", ({points}) => {
    const point = points.find(({customdata}) => customdata !== undefined && customdata !== null);
    if (own.clickable && point) own.send("clicked", [plain(point.customdata)].flat());
  });
}

async function redraw(own) {
  own.waits = true;
  if (own.busy) return;
  own.busy = true;
  try {
    const Plotly = await library(own.library);
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
    own.draw = () => redraw(own).catch((error) => {
      console.warn(error);
      if (!own.listens) own.place.textContent = own.place.ariaLabel; // what it shows, in words
    });
    own.observer = new ResizeObserver(own.draw);
    own.observer.observe(own.place);
    drawn.set(parentElement, own);
  }
  own.place.setAttribute("aria-label", data.alt);
  own.place.style.minHeight = `${data.height}px`;
  const script = document.querySelector(data.script);
  own.library = new URL(data.library, script ? script.src : document.baseURI).href;
  [own.figure, own.config, own.clickable, own.send] = [data.figure, data.config, data.clickable, setTriggerValue];
  own.draw();
  return () => {
    own.gone = true;
    own.observer.disconnect();
    drawn.delete(parentElement);
    if (window.Plotly) window.Plotly.purge(own.place);
    own.place.remove();
  };
}
