const escapeAs = (text: string, pattern: RegExp, write: (code: number) => string): string =>
  text.replace(pattern, (character) => write(character.charCodeAt(0)))

const hex = (code: number, digits: number): string => code.toString(16).padStart(digits, '0')

/** The texts in which honest writers of today put a text that they were sent, by writer. */
export const SPELLINGS: Readonly<Record<string, (text: string) => string>> = {
  plain: (text) => text,
  JavaScript: (text) => JSON.stringify(text).slice(1, -1),
  PHP: (text) => JSON.stringify(text).slice(1, -1).replaceAll('/', '\\/'),
  Go: (text) => escapeAs(JSON.stringify(text).slice(1, -1), /[<>&]/g, (code) => `\\u${hex(code, 4)}`),
  Gson: (text) => escapeAs(JSON.stringify(text).slice(1, -1), /[<>&='+]/g, (code) => `\\u${hex(code, 4)}`),
  'System.Text.Json': (text) =>
    escapeAs(JSON.stringify(text).slice(1, -1), /[<>&='+"`]/g, (code) => `\\u${hex(code, 4).toUpperCase()}`),
  'every character': (text) => escapeAs(text, /./gs, (code) => `\\u${hex(code, 4)}`),
  'a text in a text': (text) => JSON.stringify(SPELLINGS.Gson?.(text)).slice(1, -1),
  'a text in a text in a text': (text) => JSON.stringify(JSON.stringify(SPELLINGS.Gson?.(text))).slice(1, -1),
  'percent codes': (text) => encodeURIComponent(text),
  HTML: (text) => escapeAs(text, /[&<>="'/+]/g, (code) => `&#x${hex(code, 2)};`),
  'HTML by names': (text) =>
    text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;'),
  'base64 of a header': (text) => Buffer.from(`Bearer ${text}`).toString('base64'),
  'base64 of a login': (text) => Buffer.from(`user:${text}`).toString('base64'),
  'base64 in Gson': (text) =>
    Buffer.from(`x=${text}.`).toString('base64').replaceAll('=', '\\u003d').replaceAll('/', '\\/'),
  base64url: (text) => Buffer.from(`${text}, and more`).toString('base64url'),
}
