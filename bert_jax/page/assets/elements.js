/* Small helpers for the elements of the page. */
'use strict';

const LONGEST_NAME = 24; // characters of a word on a button

/**
 * An element with attributes, listeners (names that begin with 'on') and children.
 * @param {...(Node|string)} children
 */
function element(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Like `element`, for SVG. */
function svgElement(tag, attributes = {}, ...children) {
  return fill(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (typeof value === 'boolean') node.toggleAttribute(name, value);
    else if (value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

/** A labeled control; `control` gets the id that the label names. */
function labeled(text, control) {
  control.id ||= `control-${labeled.next++}`;
  return element('div', { class: 'field' }, element('label', { for: control.id }, text), control);
}
labeled.next = 1;

/** A line for results that screen readers announce. */
function statusLine() {
  return element('p', { class: 'status', role: 'status' });
}

/** A row of words as buttons, one of which is chosen. */
function wordButtons(label, words, chosen, choose) {
  const buttons = words.map((word, index) =>
    element(
      'button',
      { type: 'button', 'aria-pressed': String(index === chosen), onclick: () => choose(index) },
      shorten(word.label, LONGEST_NAME),
    ),
  );
  return element('div', { class: 'words', role: 'group', 'aria-label': label }, ...buttons);
}

/** Replace the contents of an element; the focus stays on the button with the same index. */
function replaceContents(container, ...contents) {
  const buttons = () => [...container.querySelectorAll('button')];
  const focused = buttons().indexOf(document.activeElement);
  container.replaceChildren(...contents);
  buttons()[focused]?.focus();
}

/**
 * Makes the arrow keys move between the items of a grid and choose one; Tab reaches only one item.
 * @param {number} columns items per row: up and down move by this many items.
 */
function withArrowKeys(items, columns, choose) {
  const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns };
  items.forEach((item, index) => {
    item.addEventListener('keydown', (event) => {
      let next = index + (steps[event.key] ?? 0);
      if (event.key === 'Home') next = 0;
      if (event.key === 'End') next = items.length - 1;
      if (next === index || !items[next]) return;
      event.preventDefault();
      items[next].focus();
      choose(next);
    });
  });
}

/** Calls a function once its calls have paused for this many milliseconds. */
function debounce(call, milliseconds) {
  let timer;
  return (...inputs) => {
    clearTimeout(timer);
    timer = setTimeout(() => call(...inputs), milliseconds);
  };
}

function percent(share) {
  return share < 0.001 && share > 0 ? '<0.1%' : `${(100 * share).toFixed(1)}%`;
}

/** A number with a sign. */
function signed(value, digits = 2) {
  return `${value < 0 ? '−' : '+'}${Math.abs(value).toFixed(digits)}`;
}

function shorten(text, length) {
  return text.length > length ? `${text.slice(0, length - 1)}…` : text;
}

/** A text with the characters from start to end marked, and `around` characters on each side. */
function markedText(text, start, end, around = 60) {
  const from = Math.max(0, start - around);
  const to = Math.min(text.length, end + around);
  return element(
    'span',
    {},
    (from ? '…' : '') + text.slice(from, start),
    element('mark', {}, text.slice(start, end)),
    text.slice(end, to) + (to < text.length ? '…' : ''),
  );
}
