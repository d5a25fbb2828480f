// Values under the pointer, names in legends and a bar of methods that hide their curves, and a button that switches between a
// linear and a log axis. Everything is read from the figures' data attributes, and every listener is the document's, so that
// the content of <main> can be replaced at any time; untunedRefresh then applies what was chosen to what is new.
(() => {
  const tip = document.createElement("div");
  tip.id = "tip";
  const bar = document.createElement("div");
  bar.id = "methods";
  bar.setAttribute("role", "group");
  bar.setAttribute("aria-label", "Methods");
  document.body.prepend(bar);
  document.body.append(tip);

  // What was chosen: methods that are off everywhere; in one figure, names that are on or off whatever the bar says; figures
  // that show their other axis.
  const methodsOff = new Set();
  const inFigure = new Map();
  const otherScale = new Set();

  const place = (value, low, high, scale) => {
    const f = scale === "log10" ? Math.log10 : (v) => v;
    return (f(value) - f(low)) / (f(high) - f(low));
  };

  const parsed = new WeakMap();
  const panels = (svg) => {
    if (!parsed.has(svg)) parsed.set(svg, [...svg.querySelectorAll(".panel")].map(panel));
    return parsed.get(svg);
  };
  const panel = (g) => {
    const d = g.dataset, n = (key) => Number(d[key]);
    const area = { left: n("left"), top: n("top"), width: n("width"), height: n("height") };
    const series = [...g.querySelectorAll(".series")].map((s) => ({
      element: s,
      name: s.dataset.name,
      level: s.dataset.shape === "level",
      points: (s.dataset.points || "").split(" ").filter(Boolean).map((pair) => {
        const [x, y] = pair.split(",").map(Number);
        return {
          x, y,
          px: area.left + area.width * place(x, n("x0"), n("x1"), d.xscale),
          py: area.top + area.height * (1 - place(y, n("y0"), n("y1"), d.yscale)),
        };
      }),
    }));
    return { area, series, x: d.xlabel, y: d.ylabel };
  };

  const nearest = (panel, at) => {
    let best = null;
    for (const s of panel.series) {
      if (s.element.classList.contains("off")) continue;
      for (const p of s.points) {
        const distance = Math.hypot(p.px - at.x, p.py - at.y);
        if (distance < 24 && (!best || distance < best.distance)) best = { distance, series: s, point: p };
      }
    }
    return best;
  };

  const number = (v) => (v !== 0 && (Math.abs(v) < 1e-3 || Math.abs(v) >= 1e6) ? v.toExponential(3) : String(Number(v.toPrecision(5))));

  const say = (text, event) => {
    tip.style.display = text ? "block" : "none";
    if (!text) return;
    tip.textContent = text;
    tip.style.left = `${Math.max(0, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 4))}px`;
    const below = event.clientY + 14;
    tip.style.top = `${below + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 8 : below}px`;
  };

  let dimmed = null;
  const dim = (svg, chosen) => {
    if (dimmed && dimmed !== svg) dim(dimmed, null);
    dimmed = chosen ? svg : null;
    for (const p of panels(svg)) for (const s of p.series) s.element.classList.toggle("dim", !!chosen && s !== chosen && p.series.includes(chosen));
  };

  const point = (event) => {
    const target = event.target instanceof Element ? event.target : null;
    const svg = target && target.closest("main svg.figure");
    const cell = target && target.closest(".cell");
    if (!svg) {
      if (dimmed) dim(dimmed, null);
      return say("");
    }
    if (cell) {
      const labels = cell.closest(".panel").dataset, d = cell.dataset;
      return say(`${labels.ylabel || "row"}: ${d.row}\n${labels.xlabel || "column"}: ${d.column}\n${labels.value || "value"}: ${d.value}`, event);
    }
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    const inside = (a) => at.x >= a.left && at.x <= a.left + a.width && at.y >= a.top && at.y <= a.top + a.height;
    const here = panels(svg).find((p) => inside(p.area));
    const found = here && nearest(here, at);
    dim(svg, found && found.series);
    if (!found) return say("");
    const x = found.series.level ? "" : `${here.x || "x"}: ${number(found.point.x)}\n`;
    say(`${found.series.name}\n${x}${here.y || "y"}: ${number(found.point.y)}`, event);
  };
  document.addEventListener("pointermove", point);
  document.addEventListener("pointerdown", point);
  document.addEventListener("pointerleave", () => say(""));

  const figureOf = (element) => element.closest("figure")?.id ?? "";
  const shown = (element) => inFigure.get(`${figureOf(element)} ${element.dataset.key}`) ?? !methodsOff.has(element.dataset.key);
  const apply = () => {
    for (const s of document.querySelectorAll("main .series")) s.classList.toggle("off", !shown(s));
    for (const entry of document.querySelectorAll("main .legend-entry")) {
      entry.classList.toggle("off", !shown(entry));
      entry.setAttribute("aria-pressed", String(shown(entry)));
    }
    for (const button of bar.children) button.setAttribute("aria-pressed", String(!methodsOff.has(button.dataset.key)));
    for (const button of document.querySelectorAll("main .scale")) {
      const variants = button.parentElement.querySelectorAll(".variant"), other = otherScale.has(figureOf(button)) ? 1 : 0;
      variants.forEach((variant, i) => { variant.hidden = i !== other; });
      const hidden = variants[1 - other].querySelector(".panel[data-yscale]:not([data-value])");
      button.textContent = hidden.dataset.yscale === "log10" ? "log y axis" : "linear y axis";
    }
  };

  const press = (target) => {
    const entry = target.closest("main .legend-entry"), method = target.closest("#methods button"), scale = target.closest("main .scale");
    if (entry) {
      inFigure.set(`${figureOf(entry)} ${entry.dataset.key}`, !shown(entry));
    } else if (method) {
      const key = method.dataset.key;
      if (!methodsOff.delete(key)) methodsOff.add(key);
      // The last word counts: the bar's ends what was chosen in single figures.
      for (const chosen of [...inFigure.keys()]) if (chosen.slice(chosen.indexOf(" ") + 1) === key) inFigure.delete(chosen);
    } else if (scale) {
      const id = figureOf(scale);
      if (!otherScale.delete(id)) otherScale.add(id);
    } else {
      return false;
    }
    apply();
    return true;
  };
  document.addEventListener("click", (event) => { if (event.target instanceof Element) press(event.target); });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") say("");
    const entry = event.target instanceof Element && event.target.closest(".legend-entry");
    if (entry && (event.key === "Enter" || event.key === " ")) { event.preventDefault(); press(entry); }
  });

  const button = (text) => {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = text;
    return made;
  };

  const refresh = () => {
    say("");
    dimmed = null;
    const methods = new Map();
    for (const s of document.querySelectorAll("main .series[data-method]")) {
      if (!methods.has(s.dataset.key)) methods.set(s.dataset.key, s.dataset);
    }
    // The bar is made anew only when it changes, so that a focused switch keeps its focus.
    if ([...methods.keys()].join("\n") !== [...bar.children].map((b) => b.dataset.key).join("\n")) {
      bar.replaceChildren(...[...methods].map(([key, data]) => {
        const made = button(data.method);
        made.dataset.key = key;
        made.style.setProperty("--method", data.color);
        return made;
      }));
    }
    bar.hidden = methods.size < 2;
    for (const figure of document.querySelectorAll("main figure")) {
      if (figure.querySelectorAll(".variant").length > 1 && !figure.querySelector(".scale")) {
        const made = button("");
        made.className = "scale";
        figure.prepend(made);
      }
    }
    for (const entry of document.querySelectorAll("main .legend-entry")) {
      entry.setAttribute("role", "button");
      entry.setAttribute("tabindex", "0");
    }
    apply();
  };
  window.untunedRefresh = refresh;
  refresh();

  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    for (const details of opened) details.open = true;
  });
  addEventListener("afterprint", () => { for (const details of opened) details.open = false; });
})();
