import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

export const SBOM = 'dist/sbom.cdx.json'

interface Document {
  readonly metadata: { readonly component: { readonly 'bom-ref': string } }
  readonly components: readonly Component[]
  readonly dependencies: readonly { readonly ref: string; readonly dependsOn: readonly string[] }[]
}

interface Component {
  readonly 'bom-ref': string
  readonly properties?: readonly { readonly name: string; readonly value: string }[]
}

/**
 * Writes the locked packages that this one needs as a CycloneDX document (npm sbom). Throws one sentence if
 * npm cannot tell.
 */
export function writeSbom(root: string): void {
  // The locked packages, not those that this machine happens to have.
  const locked = existsSync(join(root, 'package-lock.json')) ? ['--package-lock-only'] : []
  const args = ['sbom', '--sbom-format', 'cyclonedx', ...locked]
  const options = { cwd: root, encoding: 'utf8', maxBuffer: 64 << 20 } as const
  const { status, stdout, stderr, error } = spawnSync('npm', args, options)
  if (status !== 0) throw new Error(`npm sbom failed: ${error?.message ?? stderr.trim()}`)
  const { name }: { readonly name: string } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
  const document = withoutDevelopment(JSON.parse(stdout))
  // npm calls the project as its directory is called.
  const component = { ...document.metadata.component, name }
  const named = { ...document, metadata: { ...document.metadata, component } }
  mkdirSync(join(root, 'dist'), { recursive: true })
  writeFileSync(join(root, SBOM), `${JSON.stringify(named, null, 2)}\n`)
}

// A filter of our own: `--omit dev` of npm leaves out packages that development needs too, such as jose.
function withoutDevelopment(document: Document): Document {
  const components = document.components.filter(
    ({ properties = [] }) => !properties.some(({ name }) => name === 'cdx:npm:package:development'),
  )
  const kept = new Set([document.metadata.component, ...components].map((one) => one['bom-ref']))
  const dependencies = document.dependencies
    .filter(({ ref }) => kept.has(ref))
    .map(({ ref, dependsOn }) => ({ ref, dependsOn: dependsOn.filter((on) => kept.has(on)) }))
  return { ...document, components, dependencies }
}

if (import.meta.main) writeSbom(process.cwd())
