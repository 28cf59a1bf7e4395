(() => {
  "use strict";
  const main = document.querySelector("main");
  const live = document.getElementById("live");
  const say = (text) => { if (live.textContent !== text) live.textContent = text; };
  const clock = () => new Date().toLocaleTimeString();

  // Only what differs is replaced, so that a selection elsewhere stays.
  const update = (html) => {
    const next = document.createElement("main");
    next.innerHTML = html;
    const parts = (of) => [...of.querySelectorAll("article, #head, #alarms, #facts")];
    const before = parts(main), after = parts(next);
    if (before.length !== after.length || before.some((p, i) => p.id !== after[i].id)) {
      main.replaceChildren(...next.childNodes);
      return;
    }
    before.forEach((p, i) => { if (p.outerHTML !== after[i].outerHTML) p.replaceWith(after[i]); });
  };

  const open = () => {
    const stream = new EventSource("events");
    stream.onopen = () => say("Live.");
    stream.onmessage = (e) => { update(JSON.parse(e.data)); say("Live."); };
    stream.onerror = () => {
      if (!live.textContent.startsWith("Not live")) say("Not live since " + clock() + ": the agent does not answer. What is shown is what it said last.");
      // A browser tries again by itself, unless it was refused.
      if (stream.readyState === EventSource.CLOSED) { stream.close(); setTimeout(open, 5000); }
    };
  };
  open();
})();
