/** Elements from values. Texts are only ever set as texts: nothing that a call carries becomes markup. */

/** `element('p', { class: 'note' }, 'text', child)`; names that start with `on` are listeners. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue;
    if (key.startsWith('on')) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? '' : String(value));
  }
  made.append(...children.filter((child) => child !== undefined && child !== ''));
  return made;
}

const DECEPTIVE = /(?![\n\t])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\p{Default_Ignorable_Code_Point}]/gu;

/** Writes out what would hide, or turn the reading direction around. */
export function shownText(text) {
  return String(text).replace(DECEPTIVE, (found) => `\\u{${found.codePointAt(0).toString(16).toUpperCase()}}`);
}

/** `9 min 5 s` until a moment; empty when it has passed. */
export function timeLeft(atMs) {
  const seconds = Math.ceil((atMs - Date.now()) / 1000);
  if (seconds <= 0) return '';
  return seconds < 60 ? `${seconds} s` : `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
}
