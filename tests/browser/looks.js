// What a test asks of a page that is drawn: texts over each other, run together or beyond its edge, too faint, too
// small, glued, or cut by an ellipsis that nothing says whole; charts that are cut off without a sign that they can be
// moved.
() => {
  const found = {overlaps: [], overflows: [], faint: [], small: [], glued: [], close: [], cut: [], shortened: []};
  const wide = document.documentElement.clientWidth;
  const main = document.querySelector("[data-testid=stMain]");
  for (const each of [document.documentElement, main]) {
    if (each.scrollWidth > each.clientWidth + 1) found.overflows.push(`${each.scrollWidth} of ${each.clientWidth} px`);
  }
  const skipped = "script, style, .ss-still, [data-testid=stIconMaterial], .katex-mathml, [aria-hidden=true]";
  const seen = new Map();
  const styled = (each) => seen.get(each) || seen.set(each, getComputedStyle(each)).get(each);
  const above = (each) => { const all = []; for (; each; each = each.parentElement) all.push(each); return all; };

  const canvas = new OffscreenCanvas(1, 1).getContext("2d", {willReadFrequently: true});
  const read = new Map();
  const rgba = (colour) => read.get(colour) || read.set(colour, painted(colour)).get(colour);
  const painted = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [red, green, blue, alpha] = canvas.getImageData(0, 0, 1, 1).data;
    return [red, green, blue, alpha / 255];
  };
  const over = (top, under) => [0, 1, 2].map((place) => top[place] * top[3] + under[place] * (1 - top[3]));
  const luminance = (colour) => [0.2126, 0.7152, 0.0722].reduce((sum, weight, place) => {
    const share = colour[place] / 255;
    return sum + weight * (share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4);
  }, 0);
  const contrast = (parents) => {
    const under = parents.toReversed().reduce((ground, each) => over(rgba(styled(each).backgroundColor), ground),
      [255, 255, 255]);
    const ink = [...rgba(styled(parents[0]).color)];
    ink[3] *= parents.reduce((share, each) => share * styled(each).opacity, 1);
    const [bright, dim] = [luminance(over(ink, under)), luminance(under)].sort((one, other) => other - one);
    return (bright + 0.05) / (dim + 0.05);
  };

  // What is wider than what shows it is cut, unless shades that stay where they are say that there is more.
  const shades = (each) => styled(each).backgroundAttachment.includes("local");
  const showing = (parents) => parents.filter((each) => styled(each).overflowX !== "visible" && !each.closest("svg"));
  for (const svg of document.querySelectorAll(".js-plotly-plot .main-svg")) {
    const drawn = svg.getBoundingClientRect();
    const box = showing(above(svg.parentElement)).find((each) => each.getBoundingClientRect().right < drawn.right - 1);
    const key = [...(svg.closest("[class*=st-key]")?.classList || [])].find((each) => each.startsWith("st-key"));
    if (box && !shades(box)) found.cut.push(`${key}: ${drawn.width} of ${box.clientWidth} px`);
  }

  // What an ellipsis cuts has to be said whole where a pointer rests: by a title, or by what describes it.
  const whole = (each, text) => above(each).some((parent) =>
    [parent.title, parent.ariaDescription].some((told) => told && told.includes(text)));
  for (const each of document.querySelectorAll("[data-testid=stMain] *, header *")) {
    const field = each.matches("input, textarea"), text = (field ? each.value || each.placeholder : each.textContent).trim();
    if (!text || each.closest(skipped) || styled(each).overflowX === "visible" || each.closest("svg")) continue;
    if (!field && styled(each).textOverflow !== "ellipsis") continue;
    if (each.clientWidth < 8 || !each.checkVisibility({opacityProperty: true, visibilityProperty: true})) continue;
    if (each.scrollWidth > each.clientWidth + 1 && !whole(each, text)) found.shortened.push(text.slice(0, 60));
  }

  const boxes = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let before = null;
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const parent = node.parentElement, text = node.data;
    if (!parent.closest("[data-testid=stMain], header") || parent.closest(skipped)) continue;
    if (!parent.checkVisibility({opacityProperty: true, visibilityProperty: true})) continue;
    const parents = above(parent), drawing = parent.closest("svg") !== null;
    const range = document.createRange();
    range.selectNodeContents(node);
    const rects = [...range.getClientRects()];
    if (!drawing) {
      // Two texts of one line without anything between them are one word for those who hear them.
      const line = before && rects.length && before.right !== undefined && Math.abs(before.y - rects[0].y) < 8;
      const inline = before && before.block === parents.find((each) => styled(each).display !== "inline");
      if (line && inline && !parent.closest("[role=img]") && /\w$/.test(before.text) && /^\w/.test(text)) {
        found.glued.push(`${before.text.slice(-20)}|${text.slice(0, 20)}`);
      }
      before = {text, block: parents.find((each) => styled(each).display !== "inline"), ...rects.at(-1)?.toJSON()};
    }
    if (!text.trim()) continue;
    const heard = parents.some((each) => styled(each).clipPath.startsWith("inset"));
    if (heard || !rects.length) continue;
    const name = text.trim().slice(0, 40);
    if (parseFloat(styled(parent).fontSize) < 11) found.small.push(`${name}: ${styled(parent).fontSize}`);
    // The value of a slider stands beside its thumb, not on it.
    const off = parent.closest("[disabled], [aria-disabled=true], :disabled, [data-testid=stSliderThumbValue]");
    if (!drawing && !off && contrast(parents) < 4.5) found.faint.push(`${name}: ${contrast(parents).toFixed(2)}`);
    const clips = parents.filter((each) => styled(each).overflowX !== "visible").map((each) => each.getBoundingClientRect());
    for (const rect of rects) {
      const left = Math.max(rect.left, ...clips.map((clip) => clip.left));
      const right = Math.min(rect.right, ...clips.map((clip) => clip.right));
      const top = Math.max(rect.top, ...clips.map((clip) => clip.top));
      const bottom = Math.min(rect.bottom, ...clips.map((clip) => clip.bottom));
      if (right - left < 2 || bottom - top < 2) continue;
      const air = 0.2 * (bottom - top); // a line is higher than its letters
      boxes.push({name, node, label: parent.closest("text"), left, right, top: top + air, bottom: bottom - air});
      const beyond = Math.max(left - rect.left, rect.right - right);
      if (drawing && beyond > 2 && !parents.some(shades)) found.cut.push(`${name}: ${beyond.toFixed(0)} px`);
      if (right > wide + 1 || left < -1) found.overflows.push(name);
    }
  }
  boxes.sort((one, other) => one.top - other.top);
  boxes.forEach((one, place) => {
    for (const other of boxes.slice(place + 1)) {
      if (other.top >= one.bottom) break;
      const across = Math.min(one.right, other.right) - Math.max(one.left, other.left);
      const down = Math.min(one.bottom, other.bottom) - other.top;
      if (one.node === other.node || down <= 2) continue;
      if (across > 2) found.overlaps.push(`${one.name} over ${other.name}`);
      // Two texts of a chart without a gap read as one: 128 and 192 as 128192.
      else if (one.label && other.label && one.label !== other.label && across > -2) found.close.push(`${one.name} at ${other.name}`);
    }
  });
  return Object.fromEntries(Object.entries(found).filter(([_, all]) => all.length));
}
