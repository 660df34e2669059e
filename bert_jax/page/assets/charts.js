/* Pictures: bars, attention matrices and scatter plots. */
'use strict';

const CELL = 18;
const MOST_MATRIX_WORDS = 80; // more cells than this squared make a page slow
const LABEL_LENGTH = 14;
const CHARACTER_WIDTH = 7;

/** A share from 0 to 1 as a bar with its percentage. */
function bar(share) {
  const width = `${(100 * share).toFixed(2)}%`;
  return element(
    'span',
    { class: 'bar' },
    element('span', { class: 'bar-track' }, element('span', { style: `width:${width}` })),
    element('span', { class: 'number' }, percent(share)),
  );
}

/** A list of names with shares; `choose(index)` makes the names buttons. */
function barList(label, rows, choose = null) {
  const name = ({ name }, index) =>
    choose
      ? element('button', { type: 'button', onclick: () => choose(index) }, name)
      : element('span', { class: 'name' }, name);
  const items = rows.map((row, index) => element('li', {}, name(row, index), bar(row.share)));
  return element('ol', { class: 'bars', 'aria-label': label }, ...items);
}

/** Draw a square matrix of weights, one pixel each; CSS enlarges it. */
function drawThumbnail(canvas, weights, size) {
  canvas.width = canvas.height = size;
  const heat = getComputedStyle(document.documentElement).getPropertyValue('--heat').trim();
  const color = [1, 3, 5].map((start) => parseInt(heat.slice(start, start + 2), 16)); // #rrggbb
  const image = new ImageData(size, size);
  weights.forEach((weight, i) => {
    image.data.set(color, 4 * i);
    image.data[4 * i + 3] = 255 * Math.sqrt(Math.min(1, weight));
  });
  canvas.getContext('2d').putImageData(image, 0, 0);
}

/** A matrix of weights with the words on both sides; rows attend to columns. */
function attentionMatrix(label, words, weights, chosen) {
  if (words.length > MOST_MATRIX_WORDS) {
    const note = `The matrix with its words is drawn for up to ${MOST_MATRIX_WORDS} words.`;
    return element('p', { class: 'note' }, note);
  }
  const names = words.map((word) => shorten(word.label, LABEL_LENGTH));
  const margin = CHARACTER_WIDTH * Math.max(...names.map((name) => name.length)) + 8;
  const size = margin + CELL * words.length + 2;
  const svg = svgElement('svg', {
    width: size,
    height: size,
    viewBox: `0 0 ${size} ${size}`,
    role: 'img',
    'aria-label': label,
  });
  names.forEach((name, index) => {
    const middle = margin + CELL * (index + 0.5);
    const state = index === chosen ? 'chosen' : '';
    svg.append(
      svgElement('text', { x: margin - 5, y: middle + 4, class: `row ${state}` }, name),
      svgElement('text', { transform: `translate(${middle + 4} ${margin - 5}) rotate(-90)` }, name),
    );
  });
  weights.forEach((weight, i) => {
    const [row, column] = [Math.floor(i / words.length), i % words.length];
    const cell = svgElement(
      'rect',
      {
        x: margin + CELL * column,
        y: margin + CELL * row,
        width: CELL - 1,
        height: CELL - 1,
        'fill-opacity': Math.max(0.04, Math.sqrt(Math.min(1, weight))).toFixed(3),
      },
      svgElement('title', {}, `${names[row]} → ${names[column]}: ${percent(weight)}`),
    );
    svg.append(cell);
  });
  return element(
    'div',
    { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Attention matrix' },
    svg,
  );
}

/**
 * Numbered points in a plane.
 * @param {{x: number, y: number, group: number, title: string}[]} points
 * @param {number} available width in pixels.
 */
function scatterPlot(label, points, available) {
  const width = Math.max(280, Math.min(available, 900));
  const height = Math.max(320, Math.min(0.6 * width, 480));
  const margin = 20;
  const scale = (values, from, to) => {
    const [low, high] = [Math.min(...values), Math.max(...values)];
    return (value) => from + ((value - low) / (high - low || 1)) * (to - from);
  };
  const x = scale(
    points.map((point) => point.x),
    margin,
    width - margin,
  );
  const y = scale(
    points.map((point) => point.y),
    height - margin,
    margin,
  );
  const svg = svgElement('svg', {
    class: 'scatter',
    viewBox: `0 0 ${width} ${height}`,
    role: 'img',
    'aria-label': label,
  });
  points.forEach((point, index) => {
    const transform = `translate(${x(point.x).toFixed(1)} ${y(point.y).toFixed(1)})`;
    svg.append(
      svgElement(
        'g',
        { transform, class: `point group-${point.group % 6}` },
        svgElement('title', {}, point.title),
        svgElement('circle', { r: 12 }),
        svgElement('text', { y: 4.5 }, String(index + 1)),
      ),
    );
  });
  return svg;
}
