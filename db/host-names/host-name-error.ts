/** A name that could not be looked up. The message names it and says why; it holds nothing else. */
export class HostNameError extends Error {
  override readonly name = 'HostNameError'
  /** A code of `node:dns`: `ENOTFOUND`, `ETIMEOUT`, `ESERVFAIL` and others. */
  readonly code: string

  constructor(host: string, code: string) {
    super(`the name ${host} could not be looked up: ${SENTENCES[code] ?? code}`)
    this.code = code
  }

  /** True: the name servers say that it has no address. False: they say nothing that could be believed. */
  get denied(): boolean {
    return this.code === 'ENOTFOUND'
  }
}

const SENTENCES: Readonly<Record<string, string>> = {
  ENOTFOUND: 'it has no address (ENOTFOUND)',
  ETIMEOUT: 'its name servers do not answer (ETIMEOUT)',
  EBUSY: 'too many other names are being looked up (EBUSY)',
}
