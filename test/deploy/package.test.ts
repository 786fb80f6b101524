import { execFileSync } from 'node:child_process'
import t from 'tap'
import { without } from '../support/certs/openssl.ts'
import { ROOT } from '../support/deploy/package-tree.ts'

const skip = without('npm') || without('git')

t.test('the package brings what deploys it, and no secret', { skip }, async (t) => {
  const args = ['-i', `PATH=${process.env.PATH}`, 'npm', 'pack', '--dry-run', '--json', '--ignore-scripts']
  const [packed] = JSON.parse(execFileSync('env', args, { cwd: ROOT, encoding: 'utf8' })) as [
    { readonly files: readonly { readonly path: string }[] },
  ]
  const files = new Set(packed.files.map(({ path }) => path))
  const tracked = execFileSync('git', ['ls-files', 'deploy'], { cwd: ROOT, encoding: 'utf8' })
    .trim()
    .split('\n')
  t.ok(tracked.length > 5)
  for (const path of tracked) t.ok(files.has(path), path)
  t.same(
    [...files].filter((path) => path.startsWith('deploy/secrets')),
    [],
  )
})
