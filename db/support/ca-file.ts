import { X509Certificate } from 'node:crypto'

/** The certificates of a file of CAs, PEM. OpenSSL by itself reads none after the first odd block. */
export interface CaFile {
  /** Each PEM. One that has expired is among them, and vouches for nobody. */
  readonly cas: readonly string[]
  /** The blocks that vouch for nobody, each as half a sentence: `the block at line 3 cannot be read`. */
  readonly odd: readonly string[]
}

/** A certificate, in each of OpenSSL's three labels. */
const CERTIFICATE = /^(?:X509 |TRUSTED )?CERTIFICATE$/

/** Reads a file of CAs, whatever stands between its blocks. `at`: ms since the epoch; 0: none has expired. */
export function caFileOf(pem: string, at: number): CaFile {
  const cas: string[] = []
  const odd: string[] = []
  const heads = [...pem.matchAll(/-----BEGIN ([A-Z0-9 ]{1,64})-----/g)]
  let [line, counted] = [1, 0]
  for (const [i, { 1: label = '', index }] of heads.entries()) {
    line += pem.slice(counted, index).split('\n').length - 1
    counted = index
    const block = CERTIFICATE.test(label) ? readBlock(pem.slice(index, heads[i + 1]?.index)) : label
    if (block instanceof X509Certificate) cas.push(block.toString())
    const fault = faultOf(block, at)
    if (fault !== null) odd.push(`the block at line ${line} ${fault}`)
  }
  return { cas, odd }
}

function readBlock(block: string): X509Certificate | null {
  try {
    return new X509Certificate(block)
  } catch {
    return null
  }
}

/** `block`: its label, if it is no certificate; null if it cannot be read. */
function faultOf(block: X509Certificate | string | null, at: number): string | null {
  if (block === null) return 'cannot be read'
  if (typeof block === 'string') return `is no certificate: ${block}`
  return block.validToDate.getTime() < at ? `has expired: ${block.subject.replaceAll('\n', ', ')}` : null
}
