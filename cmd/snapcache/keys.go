package main

import (
	"github.com/urfave/cli/v2"

	"github.com/snapcache/snapcache/store/bolt"
)

func encryptionFlag() cli.Flag {
	return &cli.StringFlag{
		Name: keyFlag, Usage: "read the encryption key from this `FILE`; default: the files in the configuration", TakesFile: true,
	}
}

// readKeys reads the keys that open databases and snapshots. It is called only to open one: a query
// to an agent needs no key.
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
