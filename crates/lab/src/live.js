// Brings the page up to date whenever the server says that it changed.
(() => {
  let shown = document.currentScript.dataset.version;
  let wanted = shown;
  let work = Promise.resolve();

  const note = document.createElement("div");
  note.id = "live";
  note.setAttribute("role", "status");
  note.style.cssText = "position:fixed;right:12px;bottom:12px;padding:2px 10px;border-radius:10px;font:12px/1.6 sans-serif;color:#fff;z-index:9";
  document.body.append(note);
  const say = (words, colour) => {
    note.textContent = words;
    note.style.background = colour;
  };

  // What a reader did to the page. An element is known again by its id, or else by its place among its like.
  const KEPT = [["details", "open"], [".scroll", "scrollLeft"], [".scroll", "scrollTop"]];
  const states = (main) => new Map(KEPT.flatMap(([selector, property]) => [...main.querySelectorAll(selector)].map((element, index) =>
    [`${selector} ${property} ${element.id || index}`, { element, property, value: element[property] }])));

  const refresh = async () => {
    if (shown === wanted) return;
    const answer = await fetch("/", { cache: "no-store" });
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    const [main, next] = [document.querySelector("main"), fresh.querySelector("main")];
    const version = fresh.querySelector("script[data-version]")?.dataset.version;
    if (!version) return;
    if (!main || !next) return location.reload();
    const [left, top] = [scrollX, scrollY];
    const before = states(main);
    main.replaceWith(next);
    for (const [key, { element, property }] of states(next)) if (before.has(key)) element[property] = before.get(key).value;
    scrollTo({ left, top, behavior: "instant" });
    document.title = fresh.title;
    shown = version;
    window.untunedRefresh?.();
  };

  const listen = () => {
    const events = new EventSource("/events");
    events.onopen = () => say("live", "#2a7d4f");
    events.onmessage = (event) => {
      wanted = event.data;
      // One after the other; what fails is tried again at the next event, the first of which comes with every connection.
      work = work.then(refresh).catch(() => {});
    };
    events.onerror = () => {
      say("connection lost", "#a33");
      // The browser reconnects by itself after most errors, but not after a refusal.
      if (events.readyState === EventSource.CLOSED) setTimeout(listen, 3000);
    };
  };
  say("connecting", "#777");
  listen();
})();
