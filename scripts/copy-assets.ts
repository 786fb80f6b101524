// node scripts/copy-assets.ts: puts beside the compiled files what pages load, which nothing compiles.
import { cpSync } from 'node:fs'
import { join } from 'node:path'

const ROOT = join(import.meta.dirname, '..')
const ASSETS = 'proxy/dashboard/assets'

cpSync(join(ROOT, ASSETS), join(ROOT, 'dist', ASSETS), { recursive: true })
