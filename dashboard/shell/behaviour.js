// The one script of the pages, run once per browser window. Without it they lose comfort, not function.
(({script, library}) => {
  if (window.shardscape) return;
  window.shardscape = true;

  // What draws charts is read, compiled and run while the server still computes them, but not before what is there is
  // drawn: the picture of a map that stands in its place until then is seen a tenth sooner.
  const first = document.querySelector(script);
  if (first !== null) {
    const ahead = Object.assign(document.createElement("script"), {src: new URL(library, first.src).href});
    ahead.onload = () => { ahead.dataset.read = "yes"; };
    ahead.onerror = () => ahead.remove();
    const begun = () => [...document.scripts].some(({src}) => src === ahead.src);
    const idle = window.requestIdleCallback ?? setTimeout; // Safari has none
    idle(() => { if (!begun()) document.head.append(ahead); }, {timeout: 500});
  }

  // One click is one step of Back. Streamlit adds an entry to the browser's history whenever the address changes, and
  // one click changes it several times: another page first, then its scenario, then what that page remembers.
  let acted = false;
  for (const kind of ["pointerdown", "click", "keydown", "change"]) {
    addEventListener(kind, () => { acted = true; }, true);
  }
  addEventListener("popstate", () => { acted = false; }, true);
  const push = history.pushState.bind(history);
  history.pushState = (state, title, address) => {
    if (acted) push(state, title, address);
    else history.replaceState(state, title, address);
    acted = false;
  };

  // What is dismissed stays so in this browser.
  addEventListener("click", (event) => {
    if (event.target.closest?.(".st-key-examples_dismiss button")) {
      document.cookie = "shardscape_examples=dismissed; max-age=31536000; path=/; samesite=lax";
    }
  }, true);

  // The keyboard follows what opens: into a menu, round in it, and back to its button when it closes.
  // A button that is shown only under the pointer, such as that which copies code, takes room but refuses the focus.
  const visible = (each) => each.getClientRects().length > 0 && getComputedStyle(each).visibility === "visible";
  const within = (menu, what) => [...menu.querySelectorAll(what)]
    .filter((each) => each.tabIndex >= 0 && !each.disabled && visible(each));
  const reachable = (menu) => within(menu, "a[href], button, input, select, textarea, [tabindex]");
  const start = (menu) => within(menu, "input, select, textarea")[0]
    || reachable(menu).find((each) => !each.ariaLabel?.startsWith("Help")) || menu;
  const buttons = () => [...document.querySelectorAll("[data-testid=stPopoverButton]")].filter(visible);
  const named = (button) => button.textContent.split(":")[0];
  let menu = null, opener = null, name = "", following = false, tabbed = 0, dismissed = false, gone = -Infinity;
  let holder = null, place = -1; // the element of the menu that had the focus, and its place among the reachable ones

  const opened = (found) => {
    menu = found;
    holder = null;
    opener = buttons().find((each) => each.getAttribute("aria-expanded") === "true") || null;
    if (opener === null) return;
    name = named(opener);
    const words = [...opener.querySelectorAll("p")].map((each) => each.textContent).join(" ");
    menu.setAttribute("aria-label", words); // it was the label's markup
    menu.tabIndex = -1;
    menu.focus({preventScroll: true});
  };
  const closed = () => {
    menu = null;
    gone = performance.now();
    const active = document.activeElement;
    if (active !== null && active !== document.body) return;
    // The button may have been drawn anew, with another value behind its name.
    const again = opener !== null && opener.isConnected ? opener : buttons().find((each) => named(each) === name);
    if (again) again.focus({preventScroll: true});
  };
  const kept = () => {
    // A list that a field has opened lies outside the menu.
    if (menu === null || tabbed === 0 || document.activeElement?.closest("[data-st-overlay-root]")) return;
    const elements = reachable(menu);
    focusFirst(tabbed > 0 ? elements : elements.reverse());
  };
  const focusFirst = (elements) => {
    for (const each of elements) {
      each.focus();
      if (document.activeElement === each) return;
    }
    menu.focus();
  };
  // An element that the server draws again, disables or removes drops the focus: its successor takes it.
  const restoreFocus = () => {
    const active = document.activeElement;
    if (menu === null || holder === null || (active !== document.body && !active?.disabled)) return;
    if (holder.isConnected && !holder.disabled && visible(holder)) return;
    const elements = reachable(menu);
    const next = place < 0 ? -1 : Math.min(place, elements.length - 1);
    focusFirst(next < 0 ? [] : [elements[next], ...elements]);
  };
  const rememberFocus = ({target}) => {
    if (menu === null || !menu.contains(target)) return;
    holder = target;
    place = reachable(menu).indexOf(target);
  };
  // A menu dismissed while the server still draws it is opened again by what the server then sends.
  const dismissing = () => {
    if (dismissed && menu !== null && visible(menu)) opener?.click();
  };
  const dismisses = (event) => {
    // An open menu is missing for the moment in which what the server sent takes its place.
    if (menu === null) return event.key === "Escape" && performance.now() - gone < 1000;
    const active = document.activeElement; // a list that a field has opened is dismissed first
    const root = active?.closest("[data-st-overlay-root]") ?? menu;
    return event.key === "Escape" && root === menu && active?.getAttribute("aria-expanded") !== "true";
  };
  // Whoever opens the search types at once: what is typed before its field is there is kept for it, and does not reach
  // Streamlit, whose "r" runs the page again.
  let sought = null, typed = null, opening = 0;
  const choose = (field, left) => { // once the list has an entry to choose
    if (!field.getAttribute("aria-activedescendant") && left) return setTimeout(() => choose(field, left - 1), 100);
    field.dispatchEvent(new KeyboardEvent("keydown", {key: "Enter", code: "Enter", bubbles: true, cancelable: true}));
  };
  const seek = () => {
    const field = document.querySelector(".st-key-search_field input");
    if (field === sought) return;
    sought = field;
    if (field === null) return;
    setTimeout(() => { // the window takes the focus first
      field.focus();
      const {words, enter} = typed ?? {words: "", enter: false};
      typed = null;
      if (words) document.execCommand("insertText", false, words);
      if (enter) setTimeout(() => choose(field, 20), 200);
    }, 100);
  };
  const openingSearch = () => {
    if (document.querySelector(".st-key-search_field") !== null) return;
    typed = {words: "", enter: false};
    clearTimeout(opening);
    opening = setTimeout(() => { typed = null; }, 10_000); // it did not come
  };
  const keep = (event) => {
    if (typed === null || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key.length === 1) typed.words += event.key;
    else if (event.key === "Backspace") typed.words = typed.words.slice(0, -1);
    else if (event.key === "Enter") typed.enter = true;
    else {
      if (event.key === "Escape") typed = null;
      return;
    }
    event.preventDefault();
    event.stopImmediatePropagation();
  };
  addEventListener("keydown", (event) => {
    const shortcut = (event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k";
    if (shortcut && document.querySelector(".st-key-search_open kbd") !== null) openingSearch();
    else keep(event);
  }, true);
  addEventListener("click", ({target}) => { if (target.closest?.(".st-key-search_open button")) openingSearch(); }, true);

  // Markup of Streamlit's that people who hear a page, or have no pointer, cannot use as it is: a place for files that
  // has a name but says that it is nothing, code that scrolls but not by keyboard, and on a phone a list of pages with
  // something else than items, which is told as named groups of links.
  let mending = 0;
  const mend = () => {
    mending = 0;
    for (const each of document.querySelectorAll("[data-testid=stFileUploaderDropzone][role=presentation]")) {
      each.setAttribute("role", "group");
    }
    const pages = "[data-testid=stSidebarNavItems]";
    for (const each of document.querySelectorAll(`${pages}:not([role]), ${pages} li:not([role])`)) {
      each.setAttribute("role", "none");
    }
    for (const each of document.querySelectorAll(`${pages} > div:not([role])`)) {
      each.setAttribute("role", "group");
      each.setAttribute("aria-label", each.querySelector("header p")?.textContent ?? "");
    }
    for (const each of document.querySelectorAll("[data-testid=stCode] pre:not([tabindex])")) {
      if (each.scrollWidth > each.clientWidth || each.scrollHeight > each.clientHeight) each.tabIndex = 0;
    }
  };
  const mendLater = () => { mending ||= setTimeout(mend, 200); };
  new MutationObserver(() => {
    seek();
    mendLater();
    if (menu !== null && !menu.isConnected) closed();
    const found = document.querySelector("[data-testid=stPopoverBody]");
    if (menu === null && found !== null && visible(found)) {
      opened(found);
      if (dismissed) setTimeout(dismissing, 100);
    }
    restoreFocus();
    if (menu !== null && tabbed !== 0 && document.activeElement === document.body) kept();
    // Fields are drawn one by one. Whoever opened it with the pointer goes on with the pointer.
    if (menu !== null && following && document.activeElement !== start(menu)) start(menu).focus({preventScroll: true});
  }).observe(document.body, {childList: true, subtree: true, attributes: true, attributeFilter: ["disabled"]});
  addEventListener("pointerdown", () => { following = false; tabbed = 0; dismissed = false; holder = null; }, true);
  addEventListener("keydown", (event) => {
    dismissed = dismisses(event);
    if (dismissed) setTimeout(dismissing, 300);
    following = menu === null;
    tabbed = event.key !== "Tab" ? 0 : event.shiftKey ? -1 : 1;
    document.documentElement.classList.toggle("ss-quiet", event.key === "Escape");
    setTimeout(kept); // at the end of the page the focus is nowhere, or comes again at its start
  }, true);
  addEventListener("focusin", rememberFocus, true);
  addEventListener("focusin", kept, true);
  addEventListener("pointermove", () => document.documentElement.classList.remove("ss-quiet"), true);
})
