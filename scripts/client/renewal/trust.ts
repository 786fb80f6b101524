import { X509Certificate } from 'node:crypto'
import { access, lstat } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { nullIfMissing, writePrivateFile } from '../../../certs/authority/key-store.ts'
import { askGateway, gatewayAgent } from '../gateway-request.ts'
import { readIdentity } from '../identity/identity.ts'

const CHAIN = '/pki/ca-chain.pem'
const ROOTS_FILE = 'org-ca.crt'
/** Characters of a chain: two CAs take 3 KiB. */
const MAX_CHAIN = 65_536
/** The time after which no replica sends a chain that ends at a root that another one has dropped. ms. */
const DROP_MS = 3_000

/**
 * Keeps an identity's trust in the gateway what the gateway says, while its CA is replaced
 * (docs/operating.md#replace-the-ca): puts the roots in the place of those in `org-ca.crt` once a connection has
 * been verified by the new ones alone. Returns whether the certificate is of a CA that issues no more, and is
 * to be renewed now. Rejects if the gateway cannot be asked, or the files are links.
 */
export async function followTrust(directory: string, url?: string): Promise<boolean> {
  const identity = readIdentity(directory, url)
  const chain = await chainOf(identity.url, identity.ca)
  const certificates = blocksOf(chain).map((pem) => ({ pem, certificate: new X509Certificate(pem) }))
  const roots = certificates.filter(({ certificate }) => certificate.checkIssued(certificate))
  const rootsPem = roots.map(({ pem }) => pem).join('')
  if (rootsPem === '') throw new Error('the gateway names no root')
  const known = blocksOf(identity.ca)
  if (rootsPem !== known.join('')) {
    if (!known.every((pem) => rootsPem.includes(pem))) await sleep(DROP_MS)
    if ((await chainOf(identity.url, rootsPem)) !== chain) throw new Error('the CA is changing just now')
    await putTrust(directory, rootsPem, chain)
  }
  const leaf = new X509Certificate(identity.cert)
  const [issuing, ...others] = certificates.filter((one) => !roots.includes(one))
  const isOf = ({ certificate }: { readonly certificate: X509Certificate }): boolean =>
    leaf.checkIssued(certificate) && leaf.verify(certificate.publicKey)
  return issuing !== undefined && !isOf(issuing) && others.some(isOf)
}

async function chainOf(url: string, ca: string): Promise<string> {
  const agent = gatewayAgent({ ca })
  try {
    const { status, text } = await askGateway(agent, url + CHAIN)
    if (status !== 200 || text.length > MAX_CHAIN) throw new Error(`${CHAIN} was answered ${status}`)
    return text
  } finally {
    await agent.destroy()
  }
}

async function putTrust(directory: string, rootsPem: string, chain: string): Promise<void> {
  const path = join(directory, ROOTS_FILE)
  if ((await lstat(path)).isSymbolicLink())
    throw new Error(`${path} is a link: replace the file that it leads to`)
  await writePrivateFile(path, rootsPem)
  const other = join(directory, 'ca-chain.pem')
  if ((await nullIfMissing(access(other))) !== null) await writePrivateFile(other, chain)
}

const blocksOf = (pem: string): readonly string[] =>
  (pem.match(/-----BEGIN CERTIFICATE-----[\s\S]+?-----END CERTIFICATE-----/g) ?? []).map((one) => `${one}\n`)
