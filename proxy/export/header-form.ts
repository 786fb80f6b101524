/** A header that an operator may set: framing and the host are not theirs (RFC 9110 §5.6.2). */
export const HTTP_HEADER_NAME =
  /^(?!(?:host|connection|content-length|transfer-encoding|upgrade|expect|te|trailer|keep-alive)$)[!#$%&'*+.^_`|~0-9a-z-]{1,64}$/i

export const HTTP_HEADER_VALUE = /^[\x20-\x7e]*$/
