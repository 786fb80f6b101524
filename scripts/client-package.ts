import { cpSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'

// Files that nothing imports: the exports, the command, and the one that index.js loads once it knows its
// Node.
const ENTRIES = ['client/index.js', 'client/client.js', 'client/cli.js', 'register.js']
const TYPES = ['client/client.d.ts', 'register.d.ts']

interface PackageManifest {
  readonly version: string
  readonly license: string
  readonly private?: boolean
  readonly imports: object
  readonly dependencies: Readonly<Record<string, string>>
}

export const hasClient = (dist: string): boolean => existsSync(join(dist, 'scripts', 'client'))

/**
 * Lays out `sallyport-client` in `target`, from the build in `dist`: the files that its entries need, and a
 * manifest of the packages that these import. Throws if the project does not depend on one.
 */
export function layClientPackage(root: string, dist: string, target: string): void {
  rmSync(target, { recursive: true, force: true })
  const at = (name: string): string => join(dist, 'scripts', name)
  const { files, packages } = followImports([...ENTRIES, ...TYPES].map(at))
  for (const file of files) {
    const place = join(target, 'dist', relative(dist, file))
    mkdirSync(dirname(place), { recursive: true })
    cpSync(file, place)
  }
  cpSync(join(root, 'LICENSE'), join(target, 'LICENSE'))
  cpSync(join(root, 'docs/client.md'), join(target, 'README.md'))
  const manifest: PackageManifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'))
  writeFileSync(join(target, 'package.json'), `${JSON.stringify(manifestOf(manifest, packages), null, 2)}\n`)
}

function manifestOf(whole: PackageManifest, packages: ReadonlySet<string>): object {
  const { version, license, imports, dependencies } = whole
  const missing = [...packages].filter((name) => !(name in dependencies))
  if (missing.length > 0) throw new Error(`the client imports what is no dependency: ${missing.join(', ')}`)
  const entry = (types: string, file: string): object => ({
    types: `./dist/scripts/${types}`,
    default: `./dist/scripts/${file}`,
  })
  return {
    name: 'sallyport-client',
    version,
    description:
      'The client of the sallyport gateway: mutual TLS, access tokens and DPoP proofs for every SDK.',
    license,
    ...(whole.private === true && { private: true }),
    type: 'module',
    engines: { node: '>=22.19' },
    exports: {
      '.': entry('client/client.d.ts', 'client/index.js'),
      './register': entry('register.d.ts', 'register.js'),
      './package.json': './package.json',
    },
    imports,
    bin: { sallyport: 'dist/scripts/client/cli.js' },
    files: ['dist'],
    dependencies: Object.fromEntries(Object.entries(dependencies).filter(([name]) => packages.has(name))),
  }
}

interface ReachedFiles {
  readonly files: ReadonlySet<string>
  readonly packages: ReadonlySet<string>
}

function followImports(entries: readonly string[]): ReachedFiles {
  const files = new Set<string>()
  const packages = new Set<string>()
  const waiting = [...entries]
  for (let file = waiting.pop(); file !== undefined; file = waiting.pop()) {
    if (files.has(file)) continue
    files.add(file)
    for (const specifier of importsOf(readFileSync(file, 'utf8'))) {
      // Declarations name the sources that they were made of.
      if (specifier.startsWith('.'))
        waiting.push(resolve(dirname(file), specifier.replace(/(?<!\.d)\.ts$/, '.d.ts')))
      else if (!specifier.startsWith('node:') && !specifier.startsWith('#'))
        packages.add(packageOf(specifier))
    }
  }
  return { files, packages }
}

const importsOf = (text: string): readonly string[] =>
  [...text.matchAll(/(?:\bfrom\s+|\bimport\s*\(\s*|^import\s+)['"]([^'"]+)['"]/gm)].flatMap(
    ([, name]) => name ?? [],
  )

const packageOf = (specifier: string): string =>
  specifier
    .split('/')
    .slice(0, specifier.startsWith('@') ? 2 : 1)
    .join('/')

/** Run after `make build`, to try the package without a release. */
if (import.meta.main) {
  layClientPackage('.', 'dist', 'dist/release/client')
  process.stdout.write('next: npm pack ./dist/release/client\n')
}
