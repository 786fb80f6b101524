import type { IncomingHttpHeaders } from 'node:http'

/** The cookies of administration. `__Host-`: only this host sets them, over TLS (RFC 6265bis §4.1.3.2). */
export const SESSION_COOKIE = '__Host-sallyport'
export const TRANSACTION_COOKIE = '__Host-sallyport-signin'

/** The value of the one cookie of that name; null if there is none, or more than one. */
export function cookieOf({ cookie = '' }: IncomingHttpHeaders, name: string): string | null {
  const values = cookie
    .split(';')
    .map((pair) => pair.trim())
    .filter((pair) => pair.startsWith(`${name}=`))
  const [only] = values
  return only !== undefined && values.length === 1 ? only.slice(name.length + 1) : null
}

/** Prints a cookie that no script reads. `lifeS`: absent, it ends with the browser; 0: it is gone at once. */
export const setCookie = (name: string, value: string, sameSite: 'Strict' | 'Lax', lifeS?: number): string =>
  `${name}=${value}; Path=/; Secure; HttpOnly; SameSite=${sameSite}${lifeS === undefined ? '' : `; Max-Age=${lifeS}`}`
