package main

import (
	"github.com/urfave/cli/v2"

	"github.com/snapcache/snapcache/store/bolt"
)

func encryptionFlag() cli.Flag {
	return &cli.StringFlag{
		Name: keyFlag, Usage: "the key of what is encrypted is in this `FILE`; without one in those of the configuration", TakesFile: true,
	}
}

// readKeys reads the keys that a command opens databases and snapshots with. It is
// called only where one is opened: who asks an agent needs none.
func readKeys(c *cli.Context) (bolt.Keyring, error) {
	cfg, err := loadConfig(c)
	if err != nil {
		return bolt.Keyring{}, err
	}
	path := cfg.Encryption.KeyFile
	if c.String(keyFlag) != "" {
		path = c.String(keyFlag)
	}
	keys, err := bolt.ReadKeyring(path, cfg.Encryption.OldKeyFiles)
	if err != nil {
		return keys, withCode(exitUsage, err)
	}
	return keys, nil
}
