"use strict";
(() => {
  const TYPES = { f8: Float64Array, f4: Float32Array, i4: Int32Array, u1: Uint8Array };
  const FAMILY = getComputedStyle(document.body).fontFamily;
  const HEIGHTS = { lines: 250, blocks: 520, heat: 520 };
  /** Most names of blocks in a plot. */
  const NAMES = 300;

  const read = (id) => document.getElementById(id).textContent;
  const arrays = JSON.parse(read("arrays")).map(({ dtype, data }) => {
    const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
    return new TYPES[dtype](bytes.buffer);
  });
  const panels = JSON.parse(read("panels-data"), (key, value) =>
    value && typeof value === "object" && "array" in value ? arrays[value.array] : value);

  // Room left and right of every plot, so that the time axes of all panels lie below each other.
  const LEFT = 76, RIGHT = panels.some(({ views }) => views.some(({ chart }) => chart.right)) ? 68 : 24;

  // ---- colours: variables of the style sheet, which plots cannot resolve ---------------------------------------------
  const probe = document.body.appendChild(document.createElement("i"));
  const color = (name) => {
    probe.style.color = name;
    return getComputedStyle(probe).color;
  };
  const translucent = (name, opacity) => color(name).replace("rgb(", "rgba(").replace(")", `, ${opacity})`);

  // ---- numbers and times -------------------------------------------------------------------------------------------
  const UNITS = [["days", 86400, 4 * 86400], ["hours", 3600, 3 * 3600], ["min", 60, 300], ["s", 1, 0]];
  const unitOf = (span) => UNITS.find(([, , least]) => span >= least) ?? UNITS[UNITS.length - 1];
  const number = (value, digits = 6) =>
    value.toLocaleString("en", { maximumSignificantDigits: Math.max(digits, Math.ceil(Math.log10(Math.abs(value) + 1))) });
  const duration = (seconds) => {
    if (!Number.isFinite(seconds)) return "–";
    if (seconds < 60) return `${number(seconds, 3)} s`;
    for (const [name, size, smaller, part] of [["d", 86400, "h", 3600], ["h", 3600, "min", 60], ["min", 60, "s", 1]]) {
      if (seconds >= size) {
        const total = Math.round(seconds / part), per = size / part;
        return `${Math.floor(total / per)} ${name}` + (total % per ? ` ${total % per} ${smaller}` : "");
      }
    }
  };
  const clock = (seconds) => {
    if (!Number.isFinite(seconds)) return "–";
    const whole = Math.floor(seconds + 1e-9), two = (value) => String(value).padStart(2, "0");
    const days = Math.floor(whole / 86400);
    const fraction = seconds - whole > 1e-3 ? (seconds - whole).toFixed(2).slice(1) : "";
    return (days ? `${days} d ` : "") +
      `${two(Math.floor(whole / 3600) % 24)}:${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}${fraction}`;
  };
  const shown = { time: clock, duration, number: (value, digits) => number(value, digits), text: String };

  /** Index of the last entry that is at most `value`, -1 before the first. */
  const lastAtMost = (sorted, value) => {
    let low = 0, high = sorted.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (sorted[middle] <= value) low = middle + 1; else high = middle;
    }
    return low - 1;
  };

  // ---- axes --------------------------------------------------------------------------------------------------------
  const niceStep = (rough) => {
    const power = 10 ** Math.floor(Math.log10(rough));
    return power * [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999);
  };
  const timeTicks = ([low, high], width) => {
    const [name, size] = unitOf(high - low);
    const step = Math.max(niceStep((high - low) / size / Math.max(2, width / 110)), 1e-6);
    const tickvals = [], ticktext = [];
    for (let i = Math.ceil(low / size / step - 1e-9); i * step * size <= high * (1 + 1e-12); i++) {
      tickvals.push(i * step * size);
      // Adding 0 turns the -0 of Math.ceil into 0.
      ticktext.push(number(i * step + 0, 12));
    }
    return { name, tickvals, ticktext };
  };
  const DURATIONS = [1, 10, 60, 600, 3600, 36000, 86400, 864000, 8640000, 86400000];
  const DURATION_TEXTS = ["1 s", "10 s", "1 min", "10 min", "1 h", "10 h", "1 d", "10 d", "100 d", "1,000 d"];

  const widthOf = (plot) => Math.max(plot.clientWidth - LEFT - RIGHT - 6, 120);
  const axisLayout = (axis, data, width) => {
    const base = {
      title: { text: axis.label, standoff: 10 }, gridcolor: color("var(--line)"), linecolor: color("var(--rule)"),
      zeroline: false, ticks: "outside", tickcolor: color("var(--rule)"), ticklen: 4,
    };
    if (axis.kind === "time") {
      const range = [axis.low, axis.high], ticks = timeTicks(range, width);
      return {
        ...base, range, showline: true, tickmode: "array", tickvals: ticks.tickvals, ticktext: ticks.ticktext,
        title: { ...base.title, text: `${axis.label} (${ticks.name})` },
      };
    }
    if (axis.kind === "duration" || axis.kind === "log") {
      const range = [Math.log10(axis.low), Math.log10(axis.high)];
      const log = { ...base, type: "log", range, showline: true };
      return axis.kind === "log" ? { ...log, dtick: 1, tickformat: ",.0f" }
        : { ...log, tickmode: "array", tickvals: DURATIONS, ticktext: DURATION_TEXTS };
    }
    if (axis.names.length) {
      const ticktext = axis.names.map((name) => name.length > 10 ? `${name.slice(0, 9)}…` : name);
      return { ...base, title: "", range: [axis.low, axis.high], tickmode: "array", tickvals: ticktext.map((_, lane) => lane + 0.5), ticktext };
    }
    const high = axis.high ?? (data || 1) * 1.06;
    const few = axis.kind === "count" && high - axis.low < 8 ? { dtick: 1 } : { nticks: 8 };
    // Long numbers would reach into the title of the axis.
    const tickformat = Math.max(Math.abs(axis.low), Math.abs(high)) >= 1e5 ? "~s" : ",~g";
    return { ...base, ...few, range: [axis.low, high], tickformat };
  };

  // ---- the three kinds of charts: traces for the plot, and what is under the pointer -------------------------------
  const KINDS = {
    lines: {
      above: 28,
      traces: (chart) => chart.lines.flatMap((line) => {
        const curve = (y, fill, width) => ({
          type: "scatter", mode: "lines", name: line.label, x: line.x, y, hoverinfo: "skip", showlegend: width > 0,
          yaxis: line.right ? "y2" : "y",
          line: { color: color(line.color), width, shape: "hv" }, fill, fillcolor: translucent(line.color, line.low ? 0.35 : 0.2),
        });
        const band = line.low ? [curve(line.low, "none", 0), curve(line.high, "tonexty", 0)] : [];
        return [...band, curve(line.y, line.filled ? "tozeroy" : "none", 1.6)];
      }),
      // Values that are not known are NaN.
      largest: (chart, right = false) => chart.lines.filter((line) => line.right === right)
        .reduce((top, line) => (line.high ?? line.y).reduce((a, b) => b > a ? b : a, top), 0),
      legend: (chart) => chart.lines.length > 1,
      at: (chart, x) => ({
        facts: chart.lines.map((line) => {
          const index = lastAtMost(line.x, x);
          const band = line.low && index >= 0 ? ` (${number(line.low[index], 4)} to ${number(line.high[index], 4)})` : "";
          return [line.label, index < 0 || Number.isNaN(line.y[index]) ? "–" : number(line.y[index], 5) + band];
        }),
      }),
    },
    blocks: {
      above: 28,
      // Blocks are painted, for there may be a great many: an image of what is in sight lies under an empty trace.
      traces: (chart) => [
        { type: "scatter", x: [null], y: [null], hoverinfo: "skip", showlegend: false },
        ...chart.legend.map(([name, mark]) => ({
          type: "scatter", mode: "markers", name, x: [null], y: [null],
          marker: { symbol: "square", size: 11, color: color(mark) },
        })),
      ],
      largest: () => 0,
      legend: (chart) => chart.legend.length > 0,
      at: (chart, x, y, slack) => {
        const lane = lastAtMost(chart.position, y);
        let best = -1, distance = slack;
        // What is painted last lies on top.
        for (let i = chart.item.length - 1; i >= 0; i--) {
          if (chart.low[i] > lane || chart.high[i] <= lane) continue;
          const item = chart.item[i], away = Math.max(chart.start[item] - x, x - chart.finish[item], 0);
          if (away < distance || (away === 0 && best < 0)) [best, distance] = [item, away];
          if (away === 0) break;
        }
        const where = nameOf(chart.groups, lane);
        const title = where.startsWith(chart.lane) ? where : `${chart.lane} ${lane}, ${where}`;
        if (best < 0) return { title, facts: [] };
        return { title, facts: chart.facts.map(({ label, values, kind }) => [label, shown[kind](values[best])]) };
      },
    },
    heat: {
      above: 66,
      traces: (chart) => {
        const columns = chart.times.length - 1;
        const rows = Array.from({ length: chart.lanes.length - 1 }, (_, row) =>
          Array.from(chart.share.subarray(row * columns, (row + 1) * columns), (value) => value / chart.full * 100));
        return [{
          type: "heatmap", x: Array.from(chart.times), y: Array.from(chart.lanes), z: rows, zmin: 0, zmax: 100, hoverinfo: "skip",
          colorscale: chart.colors.map((level, index) => [index / (chart.colors.length - 1), color(level)]),
          colorbar: {
            title: { text: `${chart.label} (%)`, side: "top" }, orientation: "h", lenmode: "pixels", len: 260, thickness: 10,
            x: 0, xanchor: "left", xpad: 0, y: 1.01, yanchor: "bottom", ypad: 0, outlinewidth: 0, tickfont: { size: 12 },
          },
        }];
      },
      largest: () => 0,
      legend: () => false,
      at: (chart, x, y) => {
        const column = lastAtMost(chart.times, x), row = lastAtMost(chart.lanes, y), columns = chart.times.length - 1;
        if (column < 0 || column >= columns || row < 0 || row >= chart.lanes.length - 1) return null;
        const share = chart.share[row * columns + column] / chart.full * 100;
        return {
          title: nameOf(chart.groups, y),
          facts: [
            ["from", clock(chart.times[column])], ["to", clock(chart.times[column + 1])],
            [chart.label, `${number(share, 3)} %`],
          ],
        };
      },
    },
  };
  /** Marks left of the axis, and lines with names between clusters, as parts of a layout. */
  const beside = ({ first, kind, colors, clusters, cluster_names: names }) => {
    const mark = (of, place) => ({
      type: "rect", xref: "paper", xsizemode: "pixel", xanchor: 0, x0: -11, x1: -3, yref: "y", y0: first[place],
      y1: first[place + 1], line: { width: 0 }, fillcolor: color(colors[of % colors.length]),
    });
    const bound = (y) => ({
      type: "line", xref: "paper", x0: 0, x1: 1, yref: "y", y0: y, y1: y, line: { color: color("var(--rule)"), width: 1 },
    });
    const length = (place) => (clusters[place + 1] - clusters[place]) / clusters[clusters.length - 1] * HEIGHTS.blocks;
    const named = (text, place) => ({
      text, xref: "paper", x: 1, xanchor: "left", yref: "y", y: (clusters[place] + clusters[place + 1]) / 2, textangle: 90,
      showarrow: false, font: { size: 11 },
    });
    return {
      shapes: [...Array.from(kind, mark), ...Array.from(clusters).slice(1, -1).map(bound)],
      // Names that are longer than their cluster would lie on each other.
      annotations: names.length > 1 ? names.map(named).filter(({ text }, place) => length(place) > 8 * text.length) : [],
    };
  };
  const nameOf = (groups, lane) => groups.names[lastAtMost(groups.first, lane)] ?? "";

  // The row of a table that has been clicked: label and value of its first cell.
  let chosen = null;
  /** Picture of the blocks in sight, as a layout's `images`. */
  const paint = (chart, [left, right], [bottom, top], width, height) => {
    const scale = Math.min(window.devicePixelRatio || 1, 2);
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [Math.round(width * scale), Math.round(height * scale)];
    const pen = canvas.getContext("2d"), colors = chart.colors.map(color);
    const across = canvas.width / (right - left), up = canvas.height / (top - bottom);
    const gap = chart.item.length <= 3000 ? Math.round(scale) : 0;
    const others = chosen && chart.facts[0]?.label === chosen.label ? 0.2 : 1;
    for (let i = 0; i < chart.item.length; i++) {
      const item = chart.item[i], start = chart.start[item], finish = chart.finish[item];
      const low = chart.position[chart.low[i]], high = chart.position[chart.high[i]];
      if (finish < left || start > right || high < bottom || low > top) continue;
      // Whole pixels leave no seams between neighbours, and nothing is too small to be seen.
      const x = Math.round((Math.max(start, left) - left) * across), y = Math.round((top - Math.min(high, top)) * up);
      const marked = others < 1 && chart.facts[0].values[item] === chosen.value, least = marked ? 4 : 1;
      const wide = Math.max(Math.round((Math.min(finish, right) - left) * across) - x, least);
      const tall = Math.max(Math.round((top - Math.max(low, bottom)) * up) - y, least);
      pen.globalAlpha = marked ? 1 : others;
      pen.fillStyle = colors[chart.color[item]];
      pen.fillRect(x, y, wide > 4 * gap ? wide - gap : wide, tall > 4 * gap ? tall - gap : tall);
    }
    return [{
      source: canvas.toDataURL(), xref: "x", yref: "y", x: left, y: top, sizex: right - left, sizey: top - bottom,
      sizing: "stretch", layer: "below",
    }];
  };

  /** A text without the markup that plots know. */
  const plain = (text) => text.replace(/[&<>]/g, (sign) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[sign]);
  /** First facts of the largest blocks in sight, where they fit, as a layout's `annotations`. */
  const names = (chart, [left, right], [bottom, top], width, height) => {
    if (!chart.named) return [];
    const across = width / (right - left), up = height / (top - bottom), largest = new Map();
    for (let i = 0; i < chart.item.length; i++) {
      const item = chart.item[i];
      const x0 = Math.max(chart.start[item], left), x1 = Math.min(chart.finish[item], right);
      const y0 = Math.max(chart.position[chart.low[i]], bottom), y1 = Math.min(chart.position[chart.high[i]], top);
      const text = String(chart.facts[0].values[item]), wide = (x1 - x0) * across, tall = (y1 - y0) * up;
      if (tall < 14 || wide < 7 * text.length + 4) continue;
      if (wide * tall > (largest.get(item)?.area ?? 0)) largest.set(item, { area: wide * tall, text, x: (x0 + x1) / 2, y: (y0 + y1) / 2 });
    }
    const inks = chart.colors.map((name) => {
      const [red, green, blue] = color(name).match(/[\d.]+/g).map((part) => (part / 255) ** 2.2);
      return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? color("var(--on-bright)") : color("var(--on-dark)");
    });
    // The largest ones, as many as a page draws without delay.
    return [...largest].sort(([, a], [, b]) => b.area - a.area).slice(0, NAMES).map(([item, { text, x, y }]) => ({
      x, y, text: plain(text), showarrow: false, font: { size: 11, color: inks[chart.color[item]] }, captureevents: false,
    }));
  };

  // ---- drawing -----------------------------------------------------------------------------------------------------
  const CONFIG = {
    responsive: true, displaylogo: false, doubleClick: "reset", modeBarButtonsToRemove: ["lasso2d", "select2d", "autoScale2d"],
    toImageButtonOptions: { format: "svg" },
  };
  const draw = (plot, chart, range) => {
    const kind = KINDS[chart.kind];
    const xaxis = axisLayout(chart.x, 0, widthOf(plot));
    if (range && chart.x.kind === "time") {
      const ticks = timeTicks(range, widthOf(plot));
      Object.assign(xaxis, { range, tickvals: ticks.tickvals, ticktext: ticks.ticktext });
      xaxis.title = { ...xaxis.title, text: `${chart.x.label} (${ticks.name})` };
    }
    const layout = {
      height: HEIGHTS[chart.kind], margin: { l: LEFT, r: RIGHT, t: kind.above, b: 52 }, hovermode: false, dragmode: "zoom",
      font: { family: FAMILY, size: 13, color: color("var(--ink)") }, paper_bgcolor: color("var(--paper)"),
      plot_bgcolor: color("var(--paper)"), xaxis, yaxis: axisLayout(chart.y, kind.largest(chart), 0),
      showlegend: kind.legend(chart), legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", itemsizing: "constant" },
    };
    if (chart.right) {
      const yaxis2 = axisLayout(chart.right, kind.largest(chart, true), 0);
      layout.yaxis2 = { ...yaxis2, side: "right", overlaying: "y", tickmode: "auto", showgrid: false };
    }
    if (chart.strip) {
      Object.assign(layout, beside(chart.strip));
      Object.assign(layout.yaxis, { ticks: "", ticklabelstandoff: 12 });
    }
    if (chart.kind === "blocks") {
      xaxis.showgrid = layout.yaxis.showgrid = false;
      const sight = [xaxis.range, layout.yaxis.range, widthOf(plot), layout.height - kind.above - 52];
      layout.images = paint(chart, ...sight);
      layout.annotations = [...(layout.annotations ?? []), ...names(chart, ...sight)];
    }
    plot.chart = chart;
    return Plotly.react(plot, kind.traces(chart), layout, CONFIG);
  };

  // Zooming in time zooms every panel over time; ticks follow the range.
  const plots = [], timed = [];
  let syncing = false;
  const follow = async (source, range) => {
    if (syncing) return;
    syncing = true;
    try {
      for (const plot of timed) {
        const ticks = timeTicks(range, widthOf(plot));
        const change = {
          "xaxis.tickvals": ticks.tickvals, "xaxis.ticktext": ticks.ticktext,
          "xaxis.title.text": `${plot.chart.x.label} (${ticks.name})`,
        };
        if (plot !== source) change["xaxis.range"] = range;
        if (plot.chart.kind === "blocks") {
          const { width, height } = plot.querySelector(".nsewdrag").getBoundingClientRect();
          const sight = [range, plot.layout.yaxis.range, width, height];
          change.images = paint(plot.chart, ...sight);
          change.annotations = [...(plot.chart.strip ? beside(plot.chart.strip).annotations : []), ...names(plot.chart, ...sight)];
        }
        await Plotly.relayout(plot, change);
      }
    } finally {
      syncing = false;
    }
  };

  const make = (tag, properties = {}, ...children) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...children);
    return element;
  };
  const tip = document.getElementById("tip");
  const tell = (event, found) => {
    tip.hidden = !found;
    if (!found) return;
    const facts = found.facts.flatMap(([label, value]) =>
      [make("dt", { textContent: label }), make("dd", { textContent: value })]);
    tip.replaceChildren(make("b", { textContent: found.title }), make("dl", {}, ...facts));
    const { width, height } = tip.getBoundingClientRect();
    const right = event.clientX + 16 + width > window.innerWidth;
    tip.style.left = `${Math.max(4, right ? event.clientX - width - 14 : event.clientX + 16)}px`;
    tip.style.top = `${Math.max(4, Math.min(event.clientY + 14, window.innerHeight - height - 6))}px`;
  };
  const point = (plot, event) => {
    const area = plot.querySelector(".nsewdrag")?.getBoundingClientRect();
    if (!area || !area.width) return null;
    const across = (event.clientX - area.left) / area.width, up = (area.bottom - event.clientY) / area.height;
    if (across < 0 || across > 1 || up < 0 || up > 1) return null;
    const { xaxis, yaxis } = plot.layout;
    const along = (range, share) => range[0] + share * (range[1] - range[0]);
    const x = along(xaxis.range, across);
    const chart = plot.chart, value = xaxis.type === "log" ? 10 ** x : x;
    const slack = 3 * Math.abs(xaxis.range[1] - xaxis.range[0]) / area.width;
    const found = KINDS[chart.kind].at(chart, value, along(yaxis.range, up), slack);
    if (found && !found.title) found.title = (shown[chart.x.kind] ?? shown.number)(value);
    return found;
  };

  /** Shows a row of a table in all panels over time; without a row, the whole period. */
  const choose = async (table, row) => {
    if (!timed.length) return;
    const { x: { low, high } } = timed[0].chart;
    chosen = row < 0 ? null : { label: table.columns[0].label, value: table.columns[0].values[row] };
    const [begin, ...lengths] = row < 0 ? [low, high - low] : table.span.map((column) => table.columns[column].values[row]);
    // Jobs that never ran have no lengths.
    const length = lengths.reduce((sum, seconds) => sum + (seconds || 0), 0), room = 0.3 * length + 1e-3 * (high - low);
    await follow(null, [Math.max(low, begin - room), Math.min(high, begin + length + room)]);
    if (row >= 0) timed[0].scrollIntoView({ block: "center" });
  };

  const add = (panel) => {
    const head = make("header", {}, make("h2", { textContent: panel.title }));
    const key = make("p", { className: "key" }), table = make("div");
    const section = make("section", { className: panel.narrow ? "panel narrow" : "panel" }, head,
      make("p", { textContent: panel.note }), key, table);
    document.getElementById("panels").append(section);
    if (!panel.views.length) return null;
    const first = panel.views.find((view) => view.chart.kind !== "table");
    const plot = make("div", first ? { className: "plot", id: first.key } : {});
    section.append(plot);
    const show = async ({ chart }, range) => {
      const isTable = chart.kind === "table";
      [table.hidden, plot.hidden] = [!isTable, isTable];
      key.replaceChildren(...(chart.strip?.names.length > 1 ? chart.strip.names : []).map((name, kind) => {
        const mark = make("i");
        mark.style.background = chart.strip.colors[kind % chart.strip.colors.length];
        return make("span", {}, mark, name);
      }));
      if (isTable) table.replaceChildren(makeTable(chart, make, shown, choose));
      else await draw(plot, chart, range);
    };
    if (panel.views.length > 1) {
      const buttons = panel.views.map((view, index) => {
        const button = make("button", { type: "button", textContent: view.label, ariaPressed: String(index === 0) });
        button.dataset.view = view.key;
        button.addEventListener("click", () => {
          buttons.forEach((other) => { other.ariaPressed = String(other === button); });
          show(view, plot.layout?.xaxis.range.slice());
        });
        return button;
      });
      head.append(make("div", { className: "buttons views", role: "group" }, ...buttons));
    }
    return async () => {
      await show(panel.views[0]);
      if (!first) return;
      plots.push(plot);
      plot.addEventListener("mousemove", (event) => tell(event, point(plot, event)));
      plot.addEventListener("mouseleave", () => { tip.hidden = true; });
      if (first.chart.x.kind !== "time") return;
      timed.push(plot);
      plot.on("plotly_relayout", (change) => {
        if (Object.keys(change).some((key) => /^[xy]axis\.(range|autorange)/.test(key))) {
          follow(plot, plot.layout.xaxis.range.slice());
        }
      });
    };
  };

  window.addEventListener("theme", () => {
    for (const plot of plots.filter((one) => !one.hidden)) draw(plot, plot.chart, plot.layout.xaxis.range.slice());
  });

  // New values of charts by the ids of their plots; a range that the reader has chosen stays.
  window.addEventListener("charts", ({ detail }) => {
    for (const plot of plots.filter(({ id }) => id in detail)) {
      const range = plot.layout.xaxis.range.slice(), { low, high } = plot.chart.x;
      draw(plot, detail[plot.id], range[0] === low && range[1] === high ? undefined : range);
    }
  });

  let resized = 0;
  window.addEventListener("resize", () => {
    clearTimeout(resized);
    resized = setTimeout(() => timed.length && follow(null, timed[0].layout.xaxis.range.slice()), 200);
  });

  (async () => {
    // All panels first, so that the page has its final height and no plot is measured beside a missing scroll bar.
    for (const drawn of panels.map(add).filter(Boolean)) await drawn();
    document.documentElement.dataset.ready = "true";
  })();
})();
