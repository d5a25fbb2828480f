// Uses the page as a reader does and leaves what it saw in <pre id=result>, or sends it to the page around it.
(() => {
  const checks = [];
  const check = (name, ok, saw) => checks.push({ name, ok: !!ok, saw: String(saw) });
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const seen = (element) => element.getClientRects().length > 0;
  const tip = () => {
    const element = document.getElementById("tip");
    return element && getComputedStyle(element).display !== "none" ? element.textContent : "";
  };

  // The centre of an element after bringing it into view, with what lies there on top.
  const centre = (element) => {
    element.scrollIntoView({ block: "center", inline: "center" });
    const box = element.getBoundingClientRect();
    return under(box.left + box.width / 2, box.top + box.height / 2);
  };
  const under = (x, y) => ({ x, y, top: document.elementFromPoint(x, y) });
  const send = (kind, at) => {
    const options = { bubbles: true, cancelable: true, clientX: at.x, clientY: at.y };
    (at.top || document.body).dispatchEvent(kind === "click" ? new MouseEvent(kind, options) : new PointerEvent(kind, options));
  };
  const press = (element) => {
    const at = centre(element);
    send("click", at);
    return at.top && (element.contains(at.top) || at.top === element);
  };

  // The first point of a series as it is drawn; the last one may have left the plot.
  const ink = (series) => series.querySelector(".line, .dots circle, .marks");
  const hover = (series) => {
    const drawn = ink(series), start = drawn.getPointAtLength(0);
    drawn.scrollIntoView({ block: "center", inline: "center" });
    const place = () => new DOMPoint(start.x, start.y).matrixTransform(drawn.getScreenCTM());
    // On a phone the figure is wider than its box, which scrolls.
    const box = series.closest(".scroll"), edge = box.getBoundingClientRect();
    box.scrollLeft += place().x - edge.left - edge.width / 2;
    const at = place();
    const here = under(at.x + 1, at.y);
    send("pointermove", here);
    const text = tip();
    // Where curves begin at the same place, any of them may answer.
    const names = all(".series", series.closest(".panel")).map((s) => s.dataset.name);
    const ok = here.top && series.closest("svg").contains(here.top) && names.includes(text.split("\n")[0]) && /: [\d.e+-]+$/.test(text);
    return { ok, text };
  };

  const run = () => {
    const figures = all("main figure");
    const wide = document.documentElement.scrollWidth;
    check("width", wide <= innerWidth, `${wide} in ${innerWidth}`);
    const small = all("main svg.figure").filter(seen).filter((svg) => svg.getBoundingClientRect().width < 300 || svg.getBoundingClientRect().height < 100);
    check("figures have a size", figures.length > 0 && small.length === 0, `${figures.length} figures, ${small.length} without`);
    check("one variant is seen", figures.every((f) => all("svg.figure", f).filter(seen).length === 1), "");

    for (const figure of figures) {
      const lines = all(".series", figure).filter((s) => ink(s) && seen(s));
      if (lines.length === 0) continue;
      const result = hover(lines[0]);
      check(`hover ${figure.id}`, result.ok, result.text);
    }

    const entry = all(".legend-entry").filter(seen)[0];
    const figure = entry.closest("figure"), key = entry.dataset.key;
    const of = (key, within) => all(".series", within).filter((s) => s.dataset.key === key && s.closest(".variant").offsetWidth > 0);
    const hidden = (list) => list.length > 0 && list.every((s) => getComputedStyle(s).display === "none");
    const shown = (list) => list.length > 0 && list.every((s) => getComputedStyle(s).display !== "none");
    const reached = press(entry);
    check("legend hides", reached && hidden(of(key, figure)) && entry.getAttribute("aria-pressed") === "false", `${reached} ${key}`);
    const elsewhere = figures.filter((f) => f !== figure).flatMap((f) => of(key, f));
    check("legend hides only here", elsewhere.every((s) => getComputedStyle(s).display !== "none"), elsewhere.length);
    entry.focus();
    entry.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true, cancelable: true }));
    check("legend by keyboard", document.activeElement === entry && shown(of(key, figure)), document.activeElement.tagName);

    const switches = () => all("#methods button");
    const method = switches()[0];
    if (method) {
      const key = method.dataset.key;
      const pressed = press(method);
      check("method hides everywhere", pressed && hidden(of(key)) && switches().slice(1).every((b) => shown(of(b.dataset.key))), key);
      document.querySelector("main").innerHTML = window.original;
      window.untunedRefresh();
      window.untunedRefresh();
      check("method stays hidden in new content", hidden(of(key)) && method.isConnected && switches().length > 1, key);
      const again = all(".series").filter((s) => s.dataset.key !== key && ink(s) && seen(s))[0];
      check("new content answers", hover(again).ok, tip());
      press(method);
      check("method comes back", shown(of(key)), key);
    }

    for (const button of all("main .scale")) {
      const id = button.closest("figure").id;
      const scale = () => all(".variant", button.parentElement).filter((v) => v.offsetWidth > 0).map((v) => v.querySelector(".panel").dataset.yscale).join();
      const before = scale(), said = button.textContent;
      const pressed = press(button), after = scale();
      const series = all(".series", button.parentElement).filter((s) => ink(s) && seen(s))[0];
      const result = hover(series);
      check(`axis ${id}`, pressed && [before, after].sort().join() === "linear,log10" && button.textContent !== said, `${before} ${after} ${said}`);
      check(`axis hover ${id}`, result.ok, result.text);
      press(button);
      check(`axis back ${id}`, scale() === before, scale());
    }

    for (const panel of all(".panel").filter((p) => p.querySelector(".cell"))) {
      const cell = all(".cell", panel)[1], at = centre(cell);
      send("pointermove", at);
      const d = cell.dataset, wanted = `${panel.dataset.ylabel}: ${d.row}\n${panel.dataset.xlabel}: ${d.column}\n${panel.dataset.value}: ${d.value}`;
      check(`cell ${panel.closest("figure").id}`, cell.contains(at.top) && tip() === wanted, tip());
    }
    const box = document.getElementById("tip").getBoundingClientRect();
    check("tip is inside the window", box.left >= 0 && box.right <= innerWidth, `${box.left} ${box.right}`);

    const closed = all("details:not([open])").length;
    dispatchEvent(new Event("beforeprint"));
    const left = all("details:not([open])").length;
    dispatchEvent(new Event("afterprint"));
    check("print opens details", left === 0 && all("details:not([open])").length === closed, `${left} of ${closed}`);
    const unreachable = all("button, .legend-entry, summary, a").filter(seen).filter((e) => e.tabIndex < 0);
    check("keyboard reaches everything", unreachable.length === 0, unreachable.length);
  };

  try { run(); } catch (error) { window.seenErrors.push(String(error.stack)); }
  check("no errors", window.seenErrors.length === 0, window.seenErrors.join("; "));
  const leave = (text) => {
    const pre = document.createElement("pre");
    pre.id = "result";
    pre.textContent = text;
    document.body.append(pre);
  };
  const text = JSON.stringify(checks).replace(/[<>&]/g, (c) => `\\u00${c.charCodeAt(0).toString(16)}`);
  if (parent === window) leave(text);
  else parent.postMessage(text, "*");
})();
