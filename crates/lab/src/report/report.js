// Values under the pointer, and legend entries that hide their curves. Everything is read from the figures' data attributes.
(() => {
  const tip = document.createElement("div");
  tip.id = "tip";
  document.body.append(tip);

  const place = (value, low, high, scale) => {
    const f = scale === "log10" || scale === "log" ? Math.log10 : (v) => v;
    return (f(value) - f(low)) / (f(high) - f(low));
  };

  const panels = (svg) => [...svg.querySelectorAll(".panel")].map((g) => {
    const d = g.dataset, n = (key) => Number(d[key]);
    const area = { left: n("left"), top: n("top"), width: n("width"), height: n("height") };
    const series = [...g.querySelectorAll(".series")].map((s) => ({
      element: s,
      name: s.dataset.name.replace(/[_^]\{([^}]*)\}/g, "$1"),
      points: (s.dataset.points || "").split(" ").filter(Boolean).map((pair) => {
        const [x, y] = pair.split(",").map(Number);
        return {
          x, y,
          px: area.left + area.width * place(x, n("x0"), n("x1"), d.xscale),
          py: area.top + area.height * (1 - place(y, n("y0"), n("y1"), d.yscale)),
        };
      }),
    }));
    return { area, series };
  });

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

  for (const svg of document.querySelectorAll("figure svg")) {
    const all = panels(svg);
    const dim = (chosen) => {
      for (const panel of all) for (const s of panel.series) s.element.classList.toggle("dim", !!chosen && s !== chosen && panel.series.includes(chosen));
    };
    svg.addEventListener("pointermove", (event) => {
      const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
      const inside = (a) => at.x >= a.left && at.x <= a.left + a.width && at.y >= a.top && at.y <= a.top + a.height;
      const panel = all.find((p) => inside(p.area));
      const found = panel && nearest(panel, at);
      tip.style.display = found ? "block" : "none";
      dim(found && found.series);
      if (!found) return;
      tip.textContent = `${found.series.name}\n${number(found.point.x)}: ${number(found.point.y)}`;
      tip.style.left = `${Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 4)}px`;
      tip.style.top = `${event.clientY + 14}px`;
    });
    svg.addEventListener("pointerleave", () => { tip.style.display = "none"; dim(null); });

    for (const entry of svg.querySelectorAll(".legend-entry")) {
      const toggle = () => {
        const off = entry.classList.toggle("off");
        entry.setAttribute("aria-pressed", String(!off));
        for (const s of svg.querySelectorAll(".series")) if (s.dataset.key === entry.dataset.key) s.classList.toggle("off", off);
      };
      // The whole box takes the press, not only the ink.
      const box = entry.getBBox(), area = document.createElementNS(svg.namespaceURI, "rect");
      for (const side of ["x", "y", "width", "height"]) area.setAttribute(side, box[side]);
      area.setAttribute("fill", "transparent");
      entry.prepend(area);
      entry.setAttribute("role", "button");
      entry.setAttribute("tabindex", "0");
      entry.setAttribute("aria-pressed", "true");
      entry.addEventListener("click", toggle);
      entry.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") { event.preventDefault(); toggle(); }
      });
    }
  }
})();
