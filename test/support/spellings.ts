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
  'braces of JavaScript': (text) => escapeAs(text, /[^a-z]/g, (code) => `\\u{${code.toString(16)}}`),
  'Python’s long escapes': (text) => escapeAs(text, /\W/g, (code) => `\\U${hex(code, 8)}`),
  'octal escapes': (text) => escapeAs(text, /[^a-z]/g, (code) => `\\${code.toString(8).padStart(3, '0')}`),
  'HTML by all names': (text) =>
    text
      .replaceAll('&', '&amp;')
      .replaceAll('/', '&sol;')
      .replaceAll('=', '&equals;')
      .replaceAll('+', '&plus;'),
  'HTML without semicolons': (text) =>
    escapeAs(
      escapeAs(text, /\W(?!\d)/g, (code) => `&#${code}`),
      /[^\w&#](?=\d)/g,
      (code) => `&#${code};`,
    ),
  'hexadecimal digits': (text) => Buffer.from(`x ${text}`).toString('hex'),
  'hexadecimal capitals': (text) => Buffer.from(text).toString('hex').toUpperCase(),
  base64url: (text) => Buffer.from(`${text}, and more`).toString('base64url'),
}

/** Spellings that break a text into lines, within a text of JSON: found where all of it is at hand. */
export const BROKEN_SPELLINGS: Readonly<Record<string, (text: string) => string>> = {
  'base64 in lines': (text) =>
    Buffer.from(`authorization: Bearer ${text}\naccept: */*`.repeat(2))
      .toString('base64')
      .replaceAll(/.{20}/g, '$&\\r\\n'),
  'quoted-printable': (text) =>
    escapeAs(text, /[=\W]/g, (code) => `=${hex(code, 2).toUpperCase()}`).replaceAll(
      /([a-z])(?=[a-z])/g,
      '$1=\\r\\n',
    ),
  'a dump of bytes': (text) => Buffer.from(text).toString('hex').replaceAll(/../g, '$& '),
  'a text that is wrapped': (text) => text.replaceAll(/.{12}/g, '$&\\n  '),
  'a text of two bytes a character': (text) => text.replaceAll(/./g, '$&\\u0000'),
}
