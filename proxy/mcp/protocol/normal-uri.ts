/** A dot, slash or backslash after a percent sign, however often that sign was escaped itself. */
const ESCAPED_PART = /%(?:25)*(2e|2f|5c)/gi
const PARTS: Readonly<Record<string, string>> = { '2e': '.', '2f': '/', '5c': '\\' }

/** `.` or `..` between the dividers of a URI. `;` ends it for servers that cut off parameters of a path. */
const DOT_SEGMENT = /(?:^|[/\\:?#&=])\.\.?(?:$|[/\\?#&;])/

/**
 * Tells whether a segment of a URI's text is `.` or `..`, in any spelling: `%2e%2e`, `..%2f`, `..\`, `%252e`.
 */
export const hasDotSegment = (text: string): boolean =>
  DOT_SEGMENT.test(text.replace(ESCAPED_PART, (whole, part: string) => PARTS[part.toLowerCase()] ?? whole))

const ESCAPE = /%(.{0,2})/g
const UPPER_HEX = /^[\dA-F]{2}$/
/** Characters that need no escape (RFC 3986 §2.3), and NUL, at which a text of C ends. */
const UNFIT_ESCAPED = /[\w.~\0-]/

/**
 * Says why a URI is not in its normal form (RFC 3986 §6.2.2, WHATWG URL), as the end of a sentence; null if
 * it is. The path `/` after a host may be left out.
 */
export function uriFault(text: string): string | null {
  const url = URL.parse(text)
  if (!url) return 'is not an absolute URI'
  if (url.href !== text && !(url.host !== '' && url.href === `${text}/`))
    return 'is not written as a URI parser writes it'
  if (hasDotSegment(text)) return 'has a segment . or .., which some servers resolve'
  if ([...text.matchAll(ESCAPE)].some(([, digits = '']) => isUnfit(digits)))
    return 'has an escape (%) that is not needed, or not in upper case'
  // A file system takes two slashes for one.
  return url.protocol === 'file:' && url.pathname.includes('//') ? 'has an empty segment' : null
}

const isUnfit = (digits: string): boolean =>
  !UPPER_HEX.test(digits) || UNFIT_ESCAPED.test(String.fromCharCode(Number.parseInt(digits, 16)))
