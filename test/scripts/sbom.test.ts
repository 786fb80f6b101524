import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { SBOM, writeSbom } from '../../scripts/sbom.ts'
import { without } from '../support/certs/openssl.ts'

const ROOT = join(import.meta.dirname, '../..')
const read = (path: string) => readFileSync(join(ROOT, path), 'utf8')

t.test(
  'the bill of materials has each package that is needed, on any platform, with its digest',
  {
    skip: without('npm'),
  },
  async (t) => {
    const names = ['package.json', 'package-lock.json']
    const root = t.testdir(Object.fromEntries(names.map((name) => [name, read(name)])))
    writeSbom(root)
    const text = readFileSync(join(root, SBOM), 'utf8')
    const { bomFormat, metadata, components } = JSON.parse(text)
    t.strictSame([bomFormat, metadata.component.name], ['CycloneDX', 'sallyport'])
    const { dependencies } = JSON.parse(read('package.json'))
    const listed = new Set(components.map(({ name }: { name: string }) => name))
    for (const name of Object.keys(dependencies)) t.ok(listed.has(name), name)
    t.ok(listed.has('@node-rs/bcrypt-darwin-arm64'))
    t.notOk(listed.has('typescript'), 'what it is developed with is not part of it')
    for (const { name, hashes } of components) t.match(hashes, [{ alg: 'SHA-512' }], name)
  },
)
