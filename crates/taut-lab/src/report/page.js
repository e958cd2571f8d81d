// The page is complete without this script. The script hides variants, switches between light and dark, and zooms: dragging
// over a time in one picture zooms all of them, and a double-click shows the whole run again.
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  document.getElementById("tools").hidden = false;
  document.getElementById("ground").onclick = () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  };
  for (const box of all("#tools input"))
    box.onchange = () => all(".v" + box.value).forEach(e => e.classList.toggle("off", !box.checked));

  const NS = "http://www.w3.org/2000/svg";
  const plots = all("svg.plot[data-zoom]").map(plot => ({
    plot, axis: plot.parentNode.querySelector("g.x"), ticks: plot.parentNode.querySelector("g.x").innerHTML,
    low: +plot.dataset.low, high: +plot.dataset.high, unit: +plot.dataset.unit,
    x: +plot.getAttribute("x"), bottom: +plot.getAttribute("y") + +plot.getAttribute("height"),
    width: +plot.getAttribute("width"), height: +plot.getAttribute("height"),
  }));
  const show = (p, from, to) => {
    const scale = p.width / (p.high - p.low);
    p.plot.setAttribute("viewBox", `${(from - p.low) * scale} 0 ${(to - from) * scale} ${p.height}`);
    if (from === p.low && to === p.high) { p.axis.innerHTML = p.ticks; return; }
    p.axis.replaceChildren();
    const rough = (to - from) / p.unit / (p.width / 76), power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map(s => s * power).find(s => s >= rough), digits = Math.max(0, -Math.floor(Math.log10(step)));
    for (let n = Math.ceil(from / p.unit / step); n * step * p.unit <= to; n++) {
      const x = p.x + (n * step * p.unit - from) / (to - from) * p.width;
      const mark = document.createElementNS(NS, "path"), text = document.createElementNS(NS, "text");
      mark.setAttribute("class", "axis"); mark.setAttribute("d", `M${x} ${p.bottom}v4`);
      text.setAttribute("class", "mu"); text.setAttribute("text-anchor", "middle");
      text.setAttribute("x", x); text.setAttribute("y", p.bottom + 17); text.textContent = (n * step).toFixed(digits);
      p.axis.append(mark, text);
    }
  };
  for (const p of plots) {
    const at = event => {
      const box = p.plot.viewBox.baseVal, matrix = p.plot.getScreenCTM().inverse();
      const x = new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix).x;
      return p.low + Math.min(Math.max(x, box.x), box.x + box.width) / p.width * (p.high - p.low);
    };
    let start = null;
    p.plot.addEventListener("pointerdown", event => { start = [at(event), event.clientX]; event.preventDefault(); });
    addEventListener("pointerup", event => {
      if (start && Math.abs(event.clientX - start[1]) > 8) {
        const end = at(event), from = Math.min(start[0], end), to = Math.max(start[0], end);
        // A closer view would show only the gaps between the points that were kept.
        if (to - from > (p.high - p.low) / 1000) plots.forEach(q => show(q, from, to));
      }
      start = null;
    });
    p.plot.addEventListener("dblclick", () => plots.forEach(q => show(q, q.low, q.high)));
  }
})();
